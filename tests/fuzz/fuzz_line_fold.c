/* worker: any lines of any workers; every line leaves, and those of each worker in their order. */
#include "worker/line_fold.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FUZZ_WORKERS = 5, FUZZ_MS = 1000000 };

/* Take lines; ranks of them are counted in seen. */
static void take(struct line_fold *f, uint64_t now, bool all, int *seen)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 22);
    for (int rc; (rc = line_fold_take(f, now, all, &out)) != 0; dd_buf_clear(&out)) {
        if (rc < 0 || out.len < 4 || out.data[0] != '[' || out.data[out.len - 1] != '\n')
            abort();
        int from = -1;
        for (const char *p = (const char *)out.data + 1; *p != ']'; p++) {
            if (*p >= '0' && *p <= '4') {
                for (int i = from >= 0 ? from + 1 : *p - '0'; i <= *p - '0'; i++)
                    seen[i]++;
                from = p[1] == '-' ? *p - '0' : -1;
            } else if (*p != ',' && *p != '-') {
                abort();
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int ranks[FUZZ_WORKERS] = {0, 1, 2, 3, 4};
    struct line_fold *f;
    int added[FUZZ_WORKERS] = {0}, seen[FUZZ_WORKERS] = {0};
    uint64_t now = FUZZ_MS;
    if (line_fold_new(&f, ranks, FUZZ_WORKERS, 200 * FUZZ_MS) < 0)
        return 0;
    while (size > 1) {
        const int i = data[0] % FUZZ_WORKERS;
        now += (uint64_t)(data[0] / FUZZ_WORKERS) * FUZZ_MS;
        const uint8_t *end = memchr(data + 1, '\n', size - 1);
        const size_t n = end != NULL ? (size_t)(end - data - 1) : size - 1;
        take(f, now, false, seen);
        added[i] += line_fold_add(f, i, data + 1, n, now) == 0;
        data += n + 1;
        size -= n + 1;
    }
    take(f, now, true, seen);
    if (!line_fold_empty(f) || memcmp(added, seen, sizeof(added)) != 0)
        abort();
    line_fold_free(f);
    return 0;
}
