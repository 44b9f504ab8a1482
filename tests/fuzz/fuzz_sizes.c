/* rdzv: any text as a list of sizes; an accepted one survives encoding and decoding. */
#include "rdzv/plan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(free) int *sizes = NULL;
    DD_AUTO(free) int *again = NULL;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    int n;
    int m;
    if (text == NULL || plan_sizes_parse(&sizes, &n, text, NULL) < 0)
        return 0;
    if (plan_sizes_format(&out, sizes, n) < 0 ||
        plan_sizes_parse(&again, &m, dd_buf_str(&out), NULL) < 0 || m != n ||
        memcmp(sizes, again, (size_t)n * sizeof(*sizes)) != 0)
        abort();
    return 0;
}
