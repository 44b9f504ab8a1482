#include "lib/c10d_wire.h"

#include "base/cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    SET = 0x01,
    GET = 0x03,
    ADD = 0x04,
    WAIT = 0x06,
    DELETE_KEY = 0x08,
    APPEND = 0x09,
    MULTI_GET = 0x0a,
    CANCEL_WAIT = 0x0c,
    PING = 0x0d,
    BARRIER = 0x12,
};

static const unsigned char validate[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};

enum { MAX_OUT = (64 << 20) + (16 << 20) }; /* a value plus the keys of one wait */

void wire_init(struct wire *w, size_t max_in)
{
    *w = (struct wire){.out = DD_BUF_INIT(MAX_OUT), .in = DD_BUF_INIT(max_in)};
}

void wire_done_with(struct wire *w)
{
    dd_buf_done(&w->out);
    dd_buf_done(&w->in);
    free(w->strs);
    w->strs = NULL;
    w->nstrs = w->cap_strs = 0;
}

/* ---- requests ---- */

static void wire_put(struct wire *w, const void *p, size_t n)
{
    if (w->rc == 0 && n > 0)
        w->rc = dd_buf_append(&w->out, p, n);
}

static void put_u8(struct wire *w, unsigned char v)
{
    wire_put(w, &v, 1);
}

static void wire_put_le(struct wire *w, uint64_t v, size_t n)
{
    if (w->rc == 0)
        w->rc = dd_wr_le(&w->out, v, n);
}

static void expect(struct wire *w, enum wire_kind kind, uint32_t times)
{
    if (times == 0)
        return;
    if (w->nsteps > 0 && w->steps[w->nsteps - 1].kind == kind) {
        w->steps[w->nsteps - 1].times += times;
    } else if (w->nsteps == WIRE_STEPS) {
        w->rc = w->rc != 0 ? w->rc : -EMSGSIZE;
    } else {
        w->steps[w->nsteps].kind = kind;
        w->steps[w->nsteps++].times = times;
    }
}

void wire_key(struct wire *w, struct wire_key k)
{
    size_t np = strlen(k.prefix), nk = strlen(k.key);
    wire_put_le(w, np + nk, 8);
    wire_put(w, k.prefix, np);
    wire_put(w, k.key, nk);
}

void wire_ping(struct wire *w, uint32_t nonce)
{
    put_u8(w, PING);
    wire_put_le(w, nonce, 4);
    w->nonce = nonce;
    expect(w, WIRE_U32, 1);
}

void wire_hello(struct wire *w, uint32_t nonce)
{
    wire_put(w, validate, sizeof(validate));
    wire_ping(w, nonce);
}

static void write_head(struct wire *w, unsigned char op, struct wire_key k)
{
    put_u8(w, op);
    wire_key(w, k);
}

static void write_value(struct wire *w, unsigned char op, struct wire_key k, struct wire_value v)
{
    if (w->rc == 0)
        w->rc = dd_buf_reserve(&w->out, v.nbody + v.nhead + strlen(k.prefix) + strlen(k.key) + 17);
    write_head(w, op, k);
    wire_put_le(w, v.nhead + v.nbody, 8);
    wire_put(w, v.head, v.nhead);
    wire_put(w, v.body, v.nbody);
}

void wire_set(struct wire *w, struct wire_key k, struct wire_value v)
{
    write_value(w, SET, k, v);
}

void wire_append(struct wire *w, struct wire_key k, struct wire_value v)
{
    write_value(w, APPEND, k, v);
}

static void write_number(struct wire *w, unsigned char op, struct wire_key k, int64_t number)
{
    write_head(w, op, k);
    wire_put_le(w, (uint64_t)number, 8);
}

void wire_get(struct wire *w, struct wire_key k)
{
    write_head(w, GET, k);
    expect(w, WIRE_STR, 1);
}

void wire_add(struct wire *w, struct wire_key k, int64_t delta)
{
    write_number(w, ADD, k, delta);
    expect(w, WIRE_I64, 1);
}

void wire_delete(struct wire *w, struct wire_key k)
{
    write_head(w, DELETE_KEY, k);
    expect(w, WIRE_I64, 1);
}

void wire_barrier(struct wire *w, struct wire_key k, int64_t world)
{
    write_number(w, BARRIER, k, world);
    expect(w, WIRE_ZERO, 1);
}

void wire_wait(struct wire *w, const char *prefix, const char *const *keys, size_t n)
{
    put_u8(w, WAIT);
    wire_put_le(w, n, 8);
    for (size_t i = 0; i < n; i++)
        wire_key(w, (struct wire_key){prefix, keys[i]});
    expect(w, WIRE_ZERO, 1);
}

void wire_cancel_wait(struct wire *w)
{
    put_u8(w, CANCEL_WAIT);
    expect(w, WIRE_CANCELLED, 1);
}

void wire_multi_get(struct wire *w, uint32_t n)
{
    put_u8(w, MULTI_GET);
    wire_put_le(w, n, 8);
    expect(w, WIRE_STR, n);
}

/* ---- replies ---- */

static int begin_str(struct wire *w, uint64_t len)
{
    if (len > w->in.max - w->in.len)
        return -EMSGSIZE;
    if (w->nstrs == w->cap_strs) {
        size_t cap = w->cap_strs > 0 ? w->cap_strs * 2 : 4;
        struct wire_str *more = realloc(w->strs, cap * sizeof(*more));
        if (more == NULL)
            return -ENOMEM;
        w->strs = more;
        w->cap_strs = cap;
    }
    w->strs[w->nstrs++] = (struct wire_str){w->in.len, (size_t)len};
    w->left = (size_t)len;
    w->in_str = true;
    return 0;
}

static void next(struct wire *w)
{
    w->nhead = 0;
    w->in_str = false;
    if (++w->times_done < w->steps[w->step].times)
        return;
    w->times_done = 0;
    w->step++;
}

/* Handle a complete number of the reply. */
static int wire_take_number(struct wire *w, enum wire_kind kind)
{
    struct dd_rd r = dd_rd_of(w->head, sizeof(w->head));
    switch (kind) {
    case WIRE_ZERO:
        if (w->head[0] != 0)
            return -EPROTO;
        break;
    case WIRE_CANCELLED:
        if (w->head[0] == 0 && !w->was_released) {
            w->was_released = true;
            w->nhead = 0;
            return 0;
        }
        if (w->head[0] != 1)
            return -EPROTO;
        break;
    case WIRE_U32:
        if (dd_rd_u32(&r) != w->nonce)
            return -EPROTO;
        break;
    case WIRE_I64:
        w->number = dd_rd_i64(&r);
        break;
    case WIRE_STR: {
        int rc = begin_str(w, dd_rd_u64(&r));
        if (rc < 0 || w->left > 0)
            return rc;
        break;
    }
    }
    next(w);
    return 0;
}

static int take_bytes(struct wire *w, const unsigned char *p, size_t n, size_t *used)
{
    size_t take = n < w->left ? n : w->left;
    int rc = dd_buf_append(&w->in, p, take);
    if (rc < 0)
        return rc;
    *used += take;
    w->left -= take;
    if (w->left == 0)
        next(w);
    return 0;
}

ssize_t wire_feed(struct wire *w, const void *data, size_t n)
{
    static const size_t size[] = {
        [WIRE_ZERO] = 1, [WIRE_U32] = 4, [WIRE_I64] = 8, [WIRE_STR] = 8, [WIRE_CANCELLED] = 1};
    const unsigned char *p = data;
    size_t used = 0;
    int rc = 0;
    while (used < n && !wire_done(w) && rc == 0) {
        enum wire_kind kind = w->steps[w->step].kind;
        if (w->in_str) {
            rc = take_bytes(w, p + used, n - used, &used);
            continue;
        }
        w->head[w->nhead++] = p[used++];
        if (w->nhead == size[kind])
            rc = wire_take_number(w, kind);
    }
    return rc < 0 ? rc : (ssize_t)used;
}
