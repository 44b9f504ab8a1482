#include "lib/allgather_records.h"

#include "base/cursor.h"

#include <errno.h>

#define APART (UINT64_C(1) << 63)

void record_head(unsigned char head[RECORD_HEAD], uint32_t place, uint64_t len, bool apart)
{
    uint64_t word = len | (apart ? APART : 0);
    for (size_t i = 0; i < 4; i++)
        head[i] = (unsigned char)(place >> (8 * i));
    for (size_t i = 0; i < 8; i++)
        head[4 + i] = (unsigned char)(word >> (8 * i));
}

int records_parse(struct record *v, uint32_t n, const void *p, size_t len)
{
    struct dd_rd r = dd_rd_of(p, len);
    int found = 0;
    for (uint32_t i = 0; i < n; i++)
        v[i] = (struct record){0};
    while (dd_rd_left(&r) > 0) {
        uint32_t place = dd_rd_u32(&r);
        uint64_t word = dd_rd_u64(&r);
        bool apart = (word & APART) != 0;
        word &= ~APART;
        const unsigned char *bytes = dd_rd_bytes(&r, apart ? 0 : word);
        if (r.failed || place >= n || v[place].p != NULL)
            return -EPROTO;
        v[place] = (struct record){bytes, word, apart};
        found++;
    }
    return found;
}
