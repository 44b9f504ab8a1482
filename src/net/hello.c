#include "net/hello.h"

#include "base/cursor.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static const unsigned char magic[] = {HELLO_FIRST_BYTE, 'd', 'r', HELLO_VERSION};

enum { HELLO_HEADER = 6 };

size_t hello_need(const void *p, size_t n)
{
    struct dd_rd r = dd_rd_of(p, n);
    (void)dd_rd_bytes(&r, sizeof(magic));
    uint16_t len = dd_rd_u16_be(&r);
    return HELLO_HEADER + (r.failed ? 0U : len);
}

static int put_header(struct dd_buf *out, size_t len)
{
    if (len > HELLO_MAX - HELLO_HEADER)
        return -EMSGSIZE;
    int rc = dd_buf_reserve(out, HELLO_HEADER + len);
    if (rc < 0)
        return rc;
    (void)dd_buf_append(out, magic, sizeof(magic));
    return dd_wr_be(out, len, 2);
}

/* Check the bytes received so far, so that other protocols are refused at their first byte. > 0:
 * the message is complete and *body is the part after the header. */
static int get_body(const void *p, size_t n, size_t most, struct dd_rd *body)
{
    size_t known = n < sizeof(magic) ? n : sizeof(magic);
    size_t same = known < HELLO_VERSION_AT ? known : HELLO_VERSION_AT;
    if (n > 0 && memcmp(p, magic, same) != 0)
        return -EPROTO;
    if (known > HELLO_VERSION_AT && ((const unsigned char *)p)[HELLO_VERSION_AT] != HELLO_VERSION)
        return -EPROTONOSUPPORT;
    size_t all = hello_need(p, n);
    if (all > most)
        return -EPROTO;
    if (n < HELLO_HEADER || n < all)
        return 0;
    *body = dd_rd_of((const unsigned char *)p + HELLO_HEADER, all - HELLO_HEADER);
    return (int)all;
}

static int hello_get_text(struct dd_rd *r, char *out, size_t size)
{
    size_t left = dd_rd_left(r);
    if (left == 0)
        return -EPROTO;
    const unsigned char *end = memchr(r->p, '\0', left);
    if (end == NULL || (size_t)(end - r->p) >= size)
        return -EPROTO;
    size_t len = (size_t)(end - r->p) + 1;
    memcpy(out, dd_rd_bytes(r, len), len);
    return 0;
}

static int hello_put_text(struct dd_buf *out, const char *s, size_t size)
{
    return dd_buf_append(out, s, strnlen(s, size - 1) + 1);
}

int hello_call_encode(struct dd_buf *out, const struct hello_call *c)
{
    size_t job = strnlen(c->job_id, sizeof(c->job_id));
    size_t node = strnlen(c->node, sizeof(c->node));
    if (job == 0 || job == sizeof(c->job_id) || node == sizeof(c->node))
        return -EINVAL;
    int rc = put_header(out, job + 1 + node + 1);
    if (rc < 0)
        return rc;
    (void)hello_put_text(out, c->job_id, sizeof(c->job_id));
    return hello_put_text(out, c->node, sizeof(c->node));
}

int hello_call_decode(struct hello_call *ret, const void *p, size_t n)
{
    struct dd_rd body;
    struct hello_call c;
    static_assert(HELLO_CALL_MAX == HELLO_HEADER + sizeof(c.job_id) + sizeof(c.node),
                  "the longest call");
    int rc = get_body(p, n, HELLO_CALL_MAX, &body);
    if (rc <= 0)
        return rc;
    if (hello_get_text(&body, c.job_id, sizeof(c.job_id)) < 0 ||
        hello_get_text(&body, c.node, sizeof(c.node)) < 0 || dd_rd_left(&body) != 0)
        return -EPROTO;
    if (c.job_id[0] == '\0')
        return -EPROTO;
    *ret = c;
    return rc;
}

int hello_reply_encode(struct dd_buf *out, const struct hello_reply *r)
{
    size_t cred = strnlen(r->cred, sizeof(r->cred));
    if (cred == sizeof(r->cred))
        return -EINVAL;
    int rc = put_header(out, 2 + cred + 1);
    if (rc < 0)
        return rc;
    (void)dd_wr_u8(out, (uint8_t)r->status);
    (void)dd_wr_u8(out, (uint8_t)r->method);
    return hello_put_text(out, r->cred, sizeof(r->cred));
}

int hello_reply_decode(struct hello_reply *ret, const void *p, size_t n)
{
    struct dd_rd body;
    int rc = get_body(p, n, HELLO_MAX, &body);
    if (rc <= 0)
        return rc;
    uint8_t status = dd_rd_u8(&body);
    uint8_t method = dd_rd_u8(&body);
    struct hello_reply r = {.status = (enum hello_status)status,
                            .method = (enum net_key_method)method};
    if (body.failed || status > HELLO_FULL || method >= NET_KEY_METHOD_MAX ||
        hello_get_text(&body, r.cred, sizeof(r.cred)) < 0 || dd_rd_left(&body) != 0)
        return -EPROTO;
    *ret = r;
    return rc;
}
