#include "doctor/fabric.h"

#include "base/auto.h"
#include "base/strv.h"
#include "base/utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char name_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
static const char number_bytes[] = "0123456789";

/* Copy n bytes and terminate them. False if n is 0, or the bytes do not fit. */
static bool fabric_copy(char *to, size_t size, const char *from, size_t n)
{
    if (n == 0 || n >= size)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* Read a value at *at and advance past it. */
static bool fabric_value(char to[FABRIC_VALUE], const char **at)
{
    const bool quoted = **at == '"';
    const char *from = *at + (quoted ? 1 : 0);
    const size_t n = quoted ? strcspn(from, "\"\\\n") : strspn(from, number_bytes);
    if (quoted && from[n] != '"')
        return false;
    *at = from + n + (quoted ? 1 : 0);
    return fabric_copy(to, FABRIC_VALUE, from, n);
}

/* Read the comment of a line, without the numbers of its sources: "# text [1] [2]". A reason that
 * is too long is cut. */
static void fabric_reason(char to[FABRIC_REASON], const char *at)
{
    at += strspn(at, " \t");
    at += strspn(at, "# ");
    size_t n = strcspn(at, "[\n");
    while (n > 0 && at[n - 1] == ' ')
        n--;
    (void)snprintf(to, FABRIC_REASON, "%.*s", (int)(n < FABRIC_REASON ? n : FABRIC_REASON), at);
}

static bool fabric_line(struct fabric_variable *v, const char *line)
{
    const size_t n = strspn(line, name_bytes);
    const char *at = line + n;
    if (!fabric_copy(v->name, sizeof(v->name), line, n))
        return false;
    at += strspn(at, " ");
    if (*at++ != '=')
        return false;
    at += strspn(at, " ");
    if (!fabric_value(v->value, &at))
        return false;
    fabric_reason(v->reason, at);
    return true;
}

void fabric_profile_parse(struct fabric_profile *ret, const char *text)
{
    static const char section[] = "[environment]";
    bool inside = false;
    ret->n = 0;
    for (const char *line = text; *line != '\0' && ret->n < FABRIC_VARIABLES_MAX;) {
        if (*line == '[')
            inside = strncmp(line, section, sizeof(section) - 1) == 0;
        else if (inside && fabric_line(&ret->v[ret->n], line))
            ret->n++;
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}

static bool fabric_is_interface(const char *name)
{
    static const char end[] = "_SOCKET_IFNAME";
    const size_t n = strlen(name);
    return n >= sizeof(end) - 1 && strcmp(name + n - (sizeof(end) - 1), end) == 0;
}

/* Append the advice for a variable. value: its value in the job's environment; NULL: not set. */
static int fabric_add(json_t *list, const struct fabric_variable *v, const char *fabric,
                      const char *value)
{
    DD_AUTO(free) char *what = NULL;
    DD_AUTO(free) char *advice = NULL;
    const int n = value == NULL
                      ? asprintf(&what, "%s is not set; the profile %s.toml has %s", v->name,
                                 fabric, v->value)
                      : asprintf(&what, "%s is %.100s; the profile %s.toml has %s", v->name,
                                 value[0] != '\0' ? value : "empty", fabric, v->value);
    if (n < 0 || asprintf(&advice, "%s%sdocs/config.md describes how to use the profiles",
                          v->reason, v->reason[0] != '\0' ? "; " : "") < 0)
        return -1;
    json_t *o = json_pack("{s:s,s:s}", "what", dd_utf8_clean(what), "do", dd_utf8_clean(advice));
    return json_array_append_new(list, o);
}

json_t *fabric_profile_advice(const struct fabric_profile *p, const char *fabric, char *const *env)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n; i++) {
        const char *value = dd_env_get(env, p->v[i].name);
        if (fabric_is_interface(p->v[i].name) ||
            (value != NULL && strcmp(value, p->v[i].value) == 0))
            continue;
        if (list == NULL || fabric_add(list, &p->v[i], fabric, value) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}
