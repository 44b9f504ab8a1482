/* scontrol: any text as the output of `scontrol show node -o`; the address found is one of its
 * fields. */
#include "net/resolve_child_inner.h"

#include "base/auto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 64 };

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(free) char *out = malloc(ROOM); /* AddressSanitizer guards its end */
    if (text == NULL || out == NULL)
        return 0;
    memset(out, 'x', ROOM);
    if (!net_resolve_node_addr(text, out, ROOM))
        return 0;
    const size_t n = strnlen(out, ROOM);
    must(n > 0 && n < ROOM && strcspn(out, " \t\n") == n && strstr(text, out) != NULL);
    return 0;
}
