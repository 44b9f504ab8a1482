#include "net/frame.h"

#include "base/cursor.h"

#include <errno.h>

void frame_header(unsigned char out[FRAME_HEADER], uint16_t type, uint32_t n)
{
    const unsigned char h[FRAME_HEADER] = {
        (unsigned char)(n >> 24),
        (unsigned char)(n >> 16),
        (unsigned char)(n >> 8),
        (unsigned char)n,
        (unsigned char)(type >> 8),
        (unsigned char)type,
        (unsigned char)(FRAME_VERSION >> 8),
        (unsigned char)FRAME_VERSION,
    };
    memcpy(out, h, sizeof(h));
}

int frame_encode(struct dd_buf *out, uint16_t type, const void *data, size_t n)
{
    if (n > FRAME_MAX)
        return -EMSGSIZE;
    int rc = dd_buf_reserve(out, FRAME_HEADER + n);
    if (rc < 0)
        return rc;
    unsigned char head[FRAME_HEADER];
    frame_header(head, type, (uint32_t)n);
    (void)dd_buf_append(out, head, sizeof(head));
    return dd_buf_append(out, data, n);
}

long frame_decode(struct frame *ret, const void *p, size_t n, uint32_t max, size_t *need)
{
    struct dd_rd r = dd_rd_of(p, n);
    struct frame f = {.len = dd_rd_u32_be(&r)};
    if (!r.failed && (f.len > max || f.len > FRAME_MAX))
        return -EPROTO;
    size_t all = FRAME_HEADER + (r.failed ? 0 : (size_t)f.len);
    f.type = dd_rd_u16_be(&r);
    f.version = dd_rd_u16_be(&r);
    f.data = dd_rd_bytes(&r, f.len);
    if (need != NULL)
        *need = all;
    if (r.failed)
        return 0;
    *ret = f;
    return (long)all;
}
