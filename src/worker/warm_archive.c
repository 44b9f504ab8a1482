#include "worker/warm_archive.h"

#include "base/cursor.h"

#include <errno.h>
#include <string.h>

enum {
    LOCAL_SIGNATURE = 0x04034b50,
    CENTRAL_SIGNATURE = 0x02014b50,
    END_SIGNATURE = 0x06054b50,
    VERSION = 10,
    DATE = 0x21, /* 1 January 1980, the earliest date of the ZIP format */
};

static uint32_t crc32_of(const unsigned char *p, size_t n)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0xedb88320) : crc >> 1;
    }
    return ~crc;
}

struct number {
    uint64_t value;
    size_t size;
};

static int put_numbers(struct dd_buf *out, const struct number *v, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = dd_wr_le(out, v[i].value, v[i].size);
    return rc;
}
#define PUT(out, ...)                                                                              \
    put_numbers(out, (const struct number[]){__VA_ARGS__},                                         \
                sizeof((const struct number[]){__VA_ARGS__}) / sizeof(struct number))

int warm_archive_make(struct dd_buf *out, const char *name, const void *content, size_t len)
{
    const uint32_t crc = crc32_of(content, len);
    const size_t name_len = strlen(name);
    const size_t start = out->len;
    if (len > INT32_MAX || name_len > UINT16_MAX)
        return -EMSGSIZE;
    int rc = PUT(out, {LOCAL_SIGNATURE, 4}, {VERSION, 2}, {0, 2}, {0, 2}, {0, 2}, {DATE, 2},
                 {crc, 4}, {len, 4}, {len, 4}, {name_len, 2}, {0, 2});
    if (rc == 0)
        rc = dd_buf_puts(out, name);
    if (rc == 0)
        rc = dd_buf_append(out, content, len);
    const size_t central = out->len;
    if (rc == 0)
        rc = PUT(out, {CENTRAL_SIGNATURE, 4}, {VERSION, 2}, {VERSION, 2}, {0, 2}, {0, 2}, {0, 2},
                 {DATE, 2}, {crc, 4}, {len, 4}, {len, 4}, {name_len, 2}, {0, 2}, {0, 2}, {0, 2},
                 {0, 2}, {0, 4}, {0, 4});
    if (rc == 0)
        rc = dd_buf_puts(out, name);
    return rc < 0 ? rc
                  : PUT(out, {END_SIGNATURE, 4}, {0, 2}, {0, 2}, {1, 2}, {1, 2},
                        {out->len - central, 4}, {central - start, 4}, {0, 2});
}
