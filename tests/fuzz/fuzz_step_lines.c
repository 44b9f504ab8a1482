/* worker: any output of a worker, in pieces, is searched for steps. */
#include "worker/step_lines.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct step_lines *s = NULL;
    if (step_lines_new(&s, "(step|iter)[ =:]*([0-9]+)", NULL) < 0)
        abort();
    step_lines_begin(s);
    for (size_t i = 0; i < size;) {
        const size_t n = (size_t)data[i] % 64 + 1 < size - i ? (size_t)data[i] % 64 + 1 : size - i;
        step_lines_feed(s, data[i] & 1, data + i, n);
        i += n;
    }
    step_lines_end(s);
    if (step_lines_highest(s) < -1)
        abort();
    step_lines_free(s);
    return 0;
}
