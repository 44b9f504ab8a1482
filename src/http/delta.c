#include "http/delta.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { WORD = 8, WORTH = 3 }; /* WORTH: shorter runs of zeros are encoded as data */

static uint64_t word_at(const unsigned char *p)
{
    uint64_t w;
    memcpy(&w, p, WORD);
    return le64toh(w);
}

/* Predict the word at i by linear extrapolation of the words before it. */
static uint64_t expected(const unsigned char *p, size_t i, size_t stride)
{
    if (i < stride)
        return 0;
    const uint64_t last = word_at(p + i - stride);
    return i < 2 * stride ? last : 2 * last - word_at(p + i - 2 * stride);
}

static void put_word(unsigned char *p, uint64_t w)
{
    w = htole64(w);
    memcpy(p, &w, WORD);
}

/* ---- packing ---- */

static int put_varint(struct dd_buf *out, size_t v)
{
    int rc = 0;
    for (; rc == 0 && v >= 0x80; v >>= 7)
        rc = dd_wr_u8(out, (uint8_t)(v | 0x80));
    return rc < 0 ? rc : dd_wr_u8(out, (uint8_t)v);
}

static size_t zeros(const unsigned char *p, size_t n)
{
    size_t k = 0;
    while (k < n && p[k] == 0)
        k++;
    return k;
}

/* Return the length up to the next run of zeros that is worth encoding. */
static size_t until_zeros(const unsigned char *p, size_t n)
{
    size_t k = 0;
    while (k < n) {
        const size_t skip = zeros(p + k, n - k);
        if (skip >= WORTH || (skip > 0 && k + skip == n))
            break;
        k += skip > 0 ? skip : 1;
    }
    return k;
}

static int put_runs(struct dd_buf *out, const unsigned char *p, size_t n)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n;) {
        const size_t skip = zeros(p + i, n - i);
        i += skip;
        const size_t len = until_zeros(p + i, n - i);
        rc = put_varint(out, skip);
        if (rc == 0)
            rc = put_varint(out, len);
        if (rc == 0)
            rc = dd_buf_append(out, p + i, len);
        i += len;
    }
    return rc;
}

int delta_pack(struct dd_buf *out, const unsigned char *p, size_t n, size_t stride)
{
    if (stride == 0 || stride % WORD != 0 || stride > n)
        stride = n - n % WORD + WORD;
    DD_AUTO(free) unsigned char *rest = malloc(n + 1);
    if (rest == NULL)
        return -ENOMEM;
    size_t i = 0;
    for (; i + WORD <= n; i += WORD)
        put_word(rest + i, word_at(p + i) - expected(p, i, stride));
    if (n > i)
        memcpy(rest + i, p + i, n - i);
    int rc = dd_wr_le(out, stride, 4);
    return rc < 0 ? rc : put_runs(out, rest, n);
}

/* ---- unpacking ---- */

static bool read_varint(struct dd_rd *rd, size_t *ret)
{
    size_t v = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
        uint8_t b = dd_rd_u8(rd);
        v |= (size_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *ret = v;
            return !rd->failed;
        }
    }
    return false;
}

static int read_runs(unsigned char *out, size_t n, struct dd_rd *rd)
{
    size_t i = 0;
    while (dd_rd_left(rd) > 0) {
        size_t skip;
        size_t len;
        if (!read_varint(rd, &skip) || !read_varint(rd, &len) || skip > n - i ||
            len > n - i - skip || skip + len == 0)
            return -EPROTO;
        const unsigned char *bytes = dd_rd_bytes(rd, len);
        if (bytes == NULL)
            return -EPROTO;
        memset(out + i, 0, skip);
        memcpy(out + i + skip, bytes, len);
        i += skip + len;
    }
    return i == n ? 0 : -EPROTO;
}

int delta_unpack(unsigned char *out, size_t n, const unsigned char *packed, size_t len)
{
    struct dd_rd rd = dd_rd_of(packed, len);
    const size_t stride = dd_rd_u32(&rd);
    if (rd.failed || stride == 0 || stride % WORD != 0 || read_runs(out, n, &rd) < 0)
        return -EPROTO;
    for (size_t i = 0; i + WORD <= n; i += WORD)
        put_word(out + i, word_at(out + i) + expected(out, i, stride));
    return 0;
}
