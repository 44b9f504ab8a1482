#include "pmi/hmsg.h"

#include "base/cursor.h"

#include <errno.h>

enum { FIXED = 9 }; /* type, id, code */

int hmsg_encode(struct dd_buf *out, const struct hmsg *m)
{
    const size_t before = out->len;
    int rc = m->len > HMSG_MAX - FIXED ? -EMSGSIZE : dd_wr_le(out, FIXED + m->len, 4);
    if (rc == 0)
        rc = dd_wr_u8(out, (uint8_t)m->type);
    if (rc == 0)
        rc = dd_wr_le(out, m->id, 4);
    if (rc == 0)
        rc = dd_wr_le(out, (uint32_t)m->code, 4);
    if (rc == 0 && m->len > 0)
        rc = dd_buf_append(out, m->data, m->len);
    if (rc < 0)
        out->len = before;
    return rc;
}

int hmsg_size(const void *p, size_t n)
{
    struct dd_rd r = dd_rd_of(p, n);
    if (n < HMSG_HEAD)
        return 0;
    uint32_t len = dd_rd_u32(&r);
    return len < FIXED || len > HMSG_MAX ? -EPROTO : (int)(HMSG_HEAD + len);
}

int hmsg_decode(struct hmsg *ret, const void *p, size_t n)
{
    int size = hmsg_size(p, n);
    if (size <= 0 || n < (size_t)size)
        return size < 0 ? size : 0;
    struct dd_rd r = dd_rd_of(p, (size_t)size);
    (void)dd_rd_u32(&r);
    uint8_t type = dd_rd_u8(&r);
    if (type == 0 || type >= HMSG_TYPE_MAX)
        return -EPROTO;
    ret->type = (enum hmsg_type)type;
    ret->id = dd_rd_u32(&r);
    ret->code = (int32_t)dd_rd_u32(&r);
    ret->len = dd_rd_left(&r);
    ret->data = r.p;
    return size;
}

int hmsg_put_text(struct dd_buf *out, const char *text)
{
    return dd_buf_append(out, text, strlen(text) + 1);
}

const char *hmsg_text(const struct hmsg *m, size_t *at)
{
    if (*at >= m->len)
        return NULL;
    const unsigned char *from = m->data + *at;
    const unsigned char *nul = memchr(from, '\0', m->len - *at);
    if (nul == NULL)
        return NULL;
    *at += (size_t)(nul - from) + 1;
    return (const char *)from;
}
