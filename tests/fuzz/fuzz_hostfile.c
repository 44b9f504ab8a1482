/* alloc: any bytes as a host file. An accepted one is a list of distinct valid names. */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(hostlist) struct hostlist *once = NULL;
    struct dd_err err = {.text = ""};
    int rc = alloc_hostfile_parse(&h, "f", (const char *)data, size, &err);
    if (rc < 0) {
        if ((rc != -EINVAL && rc != -E2BIG) || strncmp(err.text, "f:", 2) != 0)
            abort();
        return 0;
    }
    for (size_t i = 0; i < hostlist_count(h); i++)
        if (!hostlist_name_ok(hostlist_nth(h, i)))
            abort();
    if (hostlist_uniq(&once, h) != 0 || hostlist_count(once) != hostlist_count(h))
        abort();
    return 0;
}
