#include "store/outbuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHARE_FROM = 16 * 1024, /* values from this size on are shared rather than copied */
    KEEP_BUFFER = 64 * 1024,
};

void store_out_init(struct store_out *o, struct store_account *account, size_t max)
{
    *o = (struct store_out){.account = account, .buf = DD_BUF_INIT(max)};
}

static void drop_refs(struct store_out *o)
{
    for (size_t i = o->refs_head; i < o->refs_n; i++)
        store_blob_unref(o->refs[i].value.blob);
    o->refs_head = o->refs_n = 0;
}

void store_out_done(struct store_out *o)
{
    drop_refs(o);
    store_account_give(o->account, o->charged);
    dd_buf_done(&o->buf);
    free(o->refs);
    store_out_init(o, o->account, o->buf.max);
}

void store_out_clear(struct store_out *o)
{
    if (o->buf.cap > KEEP_BUFFER || o->refs_cap > 0) {
        store_out_done(o);
        return;
    }
    dd_buf_clear(&o->buf);
    o->head = 0;
    o->total = 0;
}

static int charge(struct store_out *o, size_t n)
{
    int rc = store_account_take(o->account, n);
    if (rc == 0)
        o->charged += n;
    return rc;
}

/* Move the unsent bytes to the front of the buffer once most bytes are sent. */
static void compact(struct store_out *o)
{
    if (o->head < KEEP_BUFFER || o->head < o->buf.len / 2)
        return;
    dd_buf_consume(&o->buf, o->head);
    for (size_t i = o->refs_head; i < o->refs_n; i++)
        o->refs[i].pos -= o->head;
    o->head = 0;
}

static int store_out_grow(struct store_out *o, size_t n)
{
    compact(o);
    size_t before = o->buf.cap;
    int rc = dd_buf_reserve(&o->buf, n);
    return rc < 0 || o->buf.cap == before ? rc : charge(o, o->buf.cap - before);
}

int store_out_bytes(struct store_out *o, const void *p, size_t n)
{
    if (n >= o->buf.cap - o->buf.len) { /* dd_buf keeps a spare byte */
        int rc = store_out_grow(o, n);
        if (rc < 0)
            return rc;
    }
    if (n > 0)
        memcpy(o->buf.data + o->buf.len, p, n);
    o->buf.len += n;
    o->total += n;
    return 0;
}

static int refs_reserve(struct store_out *o)
{
    if (o->refs_n < o->refs_cap)
        return 0;
    size_t cap = o->refs_cap == 0 ? 4 : o->refs_cap * 2;
    int rc = charge(o, (cap - o->refs_cap) * sizeof(*o->refs));
    if (rc < 0)
        return rc;
    struct store_out_ref *refs = realloc(o->refs, cap * sizeof(*refs));
    if (refs == NULL)
        return -ENOMEM;
    o->refs = refs;
    o->refs_cap = cap;
    return 0;
}

int store_out_value(struct store_out *o, const struct store_value *v)
{
    if (v->len < SHARE_FROM) {
        struct store_bytes b = store_value_bytes(v);
        return store_out_bytes(o, b.p, b.n);
    }
    int rc = refs_reserve(o);
    if (rc < 0)
        return rc;
    struct store_out_ref *r = &o->refs[o->refs_n++];
    r->pos = o->buf.len;
    r->value = *v;
    store_blob_ref(v->blob);
    o->total += v->len;
    return 0;
}

static int store_out_put_le(struct store_out *o, uint64_t v, size_t n)
{
    unsigned char b[8];
    for (size_t i = 0; i < n; i++)
        b[i] = (unsigned char)(v >> (8 * i));
    return store_out_bytes(o, b, n);
}

int store_out_u8(struct store_out *o, uint8_t v)
{
    return store_out_bytes(o, &v, 1);
}

int store_out_u32(struct store_out *o, uint32_t v)
{
    return store_out_put_le(o, v, 4);
}

int store_out_u64(struct store_out *o, uint64_t v)
{
    return store_out_put_le(o, v, 8);
}

size_t store_out_iov(const struct store_out *o, struct iovec *iov, size_t n)
{
    size_t used = 0, at = o->head;
    for (size_t i = o->refs_head; used < n; i++) {
        size_t end = i < o->refs_n ? o->refs[i].pos : o->buf.len;
        if (end > at)
            iov[used++] = (struct iovec){o->buf.data + at, end - at};
        at = end;
        if (i >= o->refs_n || used == n)
            break;
        const struct store_value *v = &o->refs[i].value;
        iov[used++] = (struct iovec){v->blob->data + v->off, v->len};
    }
    return used;
}

void store_out_sent(struct store_out *o, size_t n)
{
    o->total -= n;
    while (n > 0) {
        struct store_out_ref *r = o->refs_head < o->refs_n ? &o->refs[o->refs_head] : NULL;
        size_t plain = (r != NULL ? r->pos : o->buf.len) - o->head;
        size_t now = n < plain ? n : plain;
        o->head += now;
        n -= now;
        if (r == NULL || n == 0)
            continue;
        now = n < r->value.len ? n : r->value.len;
        r->value.off += now;
        r->value.len -= now;
        n -= now;
        if (r->value.len == 0) {
            store_blob_unref(r->value.blob);
            o->refs_head++;
        }
    }
    if (o->total == 0)
        store_out_clear(o);
}
