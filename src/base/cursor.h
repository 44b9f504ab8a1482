/* Bounds-checked cursors over bytes: typed get and put with a sticky error, so that a parser checks
 * once at the end.
 *
 * Numbers are little-endian unless the name ends with _be. */
#ifndef DD_BASE_CURSOR_H
#define DD_BASE_CURSOR_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct dd_rd {
    const unsigned char *p;
    const unsigned char *end;
    bool failed; /* a read went beyond the end */
};

static inline struct dd_rd dd_rd_of(const void *p, size_t n)
{
    const unsigned char *b = p;
    return (struct dd_rd){.p = b, .end = n > 0 ? b + n : b};
}

static inline size_t dd_rd_left(const struct dd_rd *r)
{
    return (size_t)(r->end - r->p);
}

/* Return n bytes, borrowed from the input; NULL and failed if there are fewer. */
static inline const unsigned char *dd_rd_bytes(struct dd_rd *r, size_t n)
{
    if (r->failed || n > dd_rd_left(r)) {
        r->failed = true;
        return NULL;
    }
    const unsigned char *p = r->p;
    r->p += n;
    return p;
}

#define DD_RD_NUM(name, type)                                                                      \
    static inline type dd_rd_##name(struct dd_rd *r)                                               \
    {                                                                                              \
        const unsigned char *p = dd_rd_bytes(r, sizeof(type));                                     \
        uint64_t v = 0;                                                                            \
        for (size_t i = sizeof(type); p != NULL && i > 0; i--)                                     \
            v = v << 8 | p[i - 1];                                                                 \
        return (type)v;                                                                            \
    }
#define DD_RD_NUM_BE(name, type)                                                                   \
    static inline type dd_rd_##name(struct dd_rd *r)                                               \
    {                                                                                              \
        const unsigned char *p = dd_rd_bytes(r, sizeof(type));                                     \
        uint64_t v = 0;                                                                            \
        for (size_t i = 0; p != NULL && i < sizeof(type); i++)                                     \
            v = v << 8 | p[i];                                                                     \
        return (type)v;                                                                            \
    }

DD_RD_NUM(u8, uint8_t)
DD_RD_NUM(u32, uint32_t)
DD_RD_NUM(u64, uint64_t)
DD_RD_NUM(i64, int64_t)
DD_RD_NUM_BE(u16_be, uint16_t)
DD_RD_NUM_BE(u32_be, uint32_t)

#undef DD_RD_NUM
#undef DD_RD_NUM_BE

static inline int dd_wr_u8(struct dd_buf *b, uint8_t v)
{
    return dd_buf_append(b, &v, 1);
}

static inline int dd_wr_le(struct dd_buf *b, uint64_t v, size_t n)
{
    unsigned char out[8];
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(v >> (8 * i));
    return dd_buf_append(b, out, n);
}

static inline int dd_wr_be(struct dd_buf *b, uint64_t v, size_t n)
{
    unsigned char out[8];
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(v >> (8 * (n - 1 - i)));
    return dd_buf_append(b, out, n);
}

#endif
