/* rdzv: any text as the ages of restarts; an accepted one survives encoding and decoding. */
#include "rdzv/restart_ages.h"

#include "base/auto.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 12);
    uint64_t ages[RESTART_AGES_MAX];
    uint64_t again[RESTART_AGES_MAX];
    int n = text == NULL ? -1 : restart_ages_parse(ages, text, NULL);
    if (n < 0)
        return 0;
    if (restart_ages_format(&out, ages, n) < 0 ||
        restart_ages_parse(again, dd_buf_str(&out), NULL) != n ||
        memcmp(ages, again, (size_t)n * sizeof(ages[0])) != 0)
        abort();
    return 0;
}
