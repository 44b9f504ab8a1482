/* hostlist: any text as an expression; an accepted one must fold to an expression of the same
 * names. */
#include "hostlist/hostlist.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void same(const struct hostlist *a, const struct hostlist *b)
{
    must(hostlist_count(a) == hostlist_count(b));
    for (size_t i = 0; i < hostlist_count(a); i++)
        must(strcmp(hostlist_nth(a, i), hostlist_nth(b, i)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *expr = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(hostlist) struct hostlist *again = NULL;
    DD_AUTO(hostlist) struct hostlist *once = NULL;
    DD_AUTO(buf) struct dd_buf folded = DD_BUF_INIT(64U << 20);
    struct dd_err err = {.text = ""};
    if (expr == NULL)
        return 0;
    int rc = hostlist_parse(&h, expr, &err);
    if (rc != 0) {
        must((rc == -EINVAL || rc == -E2BIG) && err.text[0] != '\0' &&
             strchr(err.text, '\n') == NULL);
        return 0;
    }
    must(hostlist_count(h) <= HOSTLIST_MAX);
    for (size_t i = 0; i < hostlist_count(h); i++)
        must(hostlist_name_ok(hostlist_nth(h, i)));
    must(hostlist_fold(h, &folded) == 0);
    must(hostlist_parse(&again, dd_buf_str(&folded), &err) == 0);
    same(h, again);
    must(hostlist_uniq(&once, h) == 0 && hostlist_count(once) <= hostlist_count(h));
    return 0;
}
