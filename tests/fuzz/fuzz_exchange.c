/* rdzv: a sequence of pieces of parts, each preceded by its length in two bytes. */
#include "base/cursor.h"
#include "rdzv/exchange.h"

#include <stdlib.h>

enum { NODES = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct exchange_part *parts)
{
    volatile unsigned char sum = 0;
    for (int k = 0; k < NODES; k++)
        for (size_t i = 0; i < parts[k].len; i++)
            sum = (unsigned char)(sum + parts[k].data[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dd_rd r = dd_rd_of(data, size);
    struct exchange *x;
    if (exchange_new(&x, NODES) < 0)
        return 0;
    while (!r.failed && dd_rd_left(&r) > 0) {
        struct exchange_piece p;
        size_t n = dd_rd_u16_be(&r);
        const unsigned char *bytes = dd_rd_bytes(&r, n);
        if (bytes == NULL || exchange_piece_decode(&p, bytes, n) < 0)
            continue;
        if (exchange_take(x, &p, NULL) == 1) {
            if (exchange_parts(x, p.name) == NULL)
                abort();
            read_all(exchange_parts(x, p.name));
            exchange_drop(x, p.name);
        }
    }
    exchange_free(x);
    return 0;
}
