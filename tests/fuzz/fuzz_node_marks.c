/* alloc: any text as the output of scontrol and pbsnodes. What is found are lines that the daemon
 * reads. */
#include "alloc/node_marks.h"
#include "base/auto.h"
#include "rdzv/marks.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const sources[] = {"slurm-step", "pbs"};
    static const char *const none[] = {NULL};
    DD_AUTO(free) char *text = strndup(size > 0 ? (const char *)data : "", size);
    if (text == NULL)
        return 0;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(65536);
        DD_AUTO(marks) struct rdzv_marks m = {0};
        const struct alloc_marks_row *row = alloc_marks_find(sources[i],
                                                             (char *const *)(uintptr_t)none);
        const int n = alloc_marks_read(row, text, &out);
        if (n < 0 && n != -EMSGSIZE)
            abort();
        if (rdzv_marks_parse(&m, dd_buf_str(&out)) != 0 || (n >= 0 && m.n > (size_t)n))
            abort();
    }
    return 0;
}
