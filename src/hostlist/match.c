#include "hostlist/hostlist.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

/* Replaces '*' while the expression is expanded, and in the parser's message: the parser accepts
 * ':' because of IPv6 addresses, no pattern may contain ':', and the parser's own words contain
 * none. */
enum { STAND_IN = ':' };

static void match_replace(char *text, char from, char to)
{
    for (; *text != '\0'; text++)
        if (*text == from)
            *text = to;
}

static bool match_one(const char *pattern, const char *name, const char *short_name)
{
    const char *host = strchr(pattern, '.') == NULL ? short_name : name;
    return fnmatch(pattern, host, FNM_CASEFOLD | FNM_NOESCAPE) == 0;
}

int hostlist_matches(const char *pattern, const char *name, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *names = NULL;
    DD_AUTO(free) char *expr = strdup(pattern);
    DD_AUTO(free) char *short_name = strndup(name, strcspn(name, "."));
    if (expr == NULL || short_name == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (strchr(expr, STAND_IN) != NULL)
        return dd_err_set(err, -EINVAL, "':' cannot be part of a host pattern ('%.100s')", pattern);
    match_replace(expr, '*', STAND_IN);
    int rc = hostlist_parse(&names, expr, err);
    if (rc < 0 && err != NULL)
        match_replace(err->text, STAND_IN, '*');
    for (size_t i = 0; rc == 0 && i < hostlist_count(names); i++) {
        DD_AUTO(free) char *one = strdup(hostlist_nth(names, i));
        if (one == NULL)
            return dd_err_set(err, -ENOMEM, "out of memory");
        match_replace(one, STAND_IN, '*');
        rc = match_one(one, name, short_name);
    }
    return rc;
}
