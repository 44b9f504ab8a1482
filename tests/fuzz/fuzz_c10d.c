/* c10d: any bytes from store clients.
 *
 * The first byte holds flags. 0x01: one connection, whose bytes are fed whole to one store and byte
 * by byte to another; both must reply alike. Without it two connections share a store and the rest
 * is a list of (how, length, bytes). 0x02 and 0x04: which old clients are served. 0x08: starts
 * after the handshake. */
#include "base/cursor.h"
#include "store/c10d.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    WHOLE_AND_BYTES = 1,
    OLD_113 = 2,
    OLD_21 = 4,
    SHAKEN = 8,
    MAX_OUT = 1 << 20,
};

enum how { FEED, IN_PLACE, RESUME, END }; /* bits 1 and 2 of the step; bit 0 is the connection */

struct world {
    struct c10d c10d;
    struct c10d_conn conn[2];
    struct store_out out[2];
    bool open[2];
    struct dd_buf said; /* replies to connection 0 */
};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void on_woken(struct c10d_conn *c)
{
    struct world *w = (struct world *)(void *)((char *)c->c10d - offsetof(struct world, c10d));
    must(w->open[c - w->conn]);
    (void)store_out_u8(&w->out[c - w->conn], 0);
}

static const struct c10d_calls calls = {.woken = on_woken};

static void world_start(struct world *w, unsigned flags, size_t max_bytes)
{
    static const unsigned char seed[DD_SIPHASH_SEED] = {1};
    static const unsigned char magic[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    *w = (struct world){.said = DD_BUF_INIT(64 << 20)};
    w->c10d.calls = &calls;
    w->c10d.old = flags & OLD_113  ? STORE_OLD_113
                  : flags & OLD_21 ? STORE_OLD_21
                                   : STORE_OLD_REFUSE;
    w->c10d.limits = (struct store_limits){.max_key = 64,
                                           .max_value = 40000,
                                           .max_count = 50,
                                           .max_bytes = max_bytes,
                                           .max_request = 100000,
                                           .max_output = 512};
    struct store_engine_limits el = {w->c10d.limits.max_value, max_bytes};
    must(store_engine_new(&w->c10d.engine, &el, seed) == 0);
    for (int i = 0; i < 2; i++) {
        c10d_conn_init(&w->conn[i], &w->c10d);
        store_out_init(&w->out[i], store_engine_account(w->c10d.engine), MAX_OUT);
        w->open[i] = !(flags & SHAKEN) ||
                     c10d_feed(&w->conn[i], magic, sizeof(magic), &w->out[i], NULL) == 0;
    }
}

static void world_end(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        w->open[i] = true; /* the end of the other connection may wake this one */
        c10d_conn_done(&w->conn[i]);
    }
    for (int i = 0; i < 2; i++)
        store_out_done(&w->out[i]);
    must(store_waiters(w->c10d.engine) == 0);
    store_engine_clear(w->c10d.engine);
    must(store_engine_account(w->c10d.engine)->used == 0);
    store_engine_free(w->c10d.engine);
    dd_buf_done(&w->said);
}

/* Read all replies of connection i. */
static void drain(struct world *w, int i)
{
    struct store_out *o = &w->out[i];
    struct iovec iov[3];
    while (o->total > 0) {
        size_t n = store_out_iov(o, iov, 3), sent = 0;
        must(n > 0);
        for (size_t k = 0; k < n; k++) {
            must(iov[k].iov_len > 0);
            if (i == 0)
                must(dd_buf_append(&w->said, iov[k].iov_base, iov[k].iov_len) == 0);
            sent += iov[k].iov_len;
        }
        must(sent <= o->total);
        store_out_sent(o, sent);
    }
}

static int give(struct world *w, int i, enum how how, const uint8_t *p, size_t n)
{
    struct dd_err err = {.text = ""};
    struct c10d_conn *c = &w->conn[i];
    void *room;
    size_t room_n = 0;
    int rc = 0;
    if (how == RESUME)
        rc = c10d_resume(c, &w->out[i], &err);
    else if (how == END)
        rc = c10d_end(c, &w->out[i], &err);
    else if (how == IN_PLACE && !c->busy && (rc = c10d_room(c, &room, &room_n, &err)) == 0 &&
             room_n > 0) {
        n = n < room_n ? n : room_n;
        if (n > 0)
            memcpy(room, p, n);
        rc = c10d_got(c, n, &w->out[i], &err);
    } else if (rc == 0 && !c->busy && c10d_wants_input(c))
        rc = c10d_feed(c, p, n, &w->out[i], &err);
    must(rc <= 0 && (rc == 0 || err.text[0] != '\0'));
    return rc;
}

static void two_connections(struct world *w, struct dd_rd *r)
{
    while (dd_rd_left(r) > 0) {
        unsigned how = dd_rd_u8(r);
        size_t n = dd_rd_u8(r);
        int i = how & 1;
        if (n > 250) /* long inputs, which are read in place */
            n = (n - 250) * 8000;
        n = n < dd_rd_left(r) ? n : dd_rd_left(r);
        const unsigned char *p = dd_rd_bytes(r, n);
        if (w->open[i] && give(w, i, (enum how)(how >> 1 & 3), p, n) < 0) {
            c10d_conn_done(&w->conn[i]);
            w->open[i] = false;
        }
        if (how & 8)
            drain(w, i);
    }
}

/* Feed the bytes and resume until the connection is closed or idle. */
static int all_of(struct world *w, const uint8_t *p, size_t n)
{
    int rc = n > 0 ? give(w, 0, FEED, p, n) : 0;
    drain(w, 0);
    while (rc == 0 && w->conn[0].busy) {
        rc = give(w, 0, RESUME, NULL, 0);
        drain(w, 0);
    }
    return rc;
}

static void whole_and_bytes(unsigned flags, const uint8_t *p, size_t n)
{
    struct world a, b;
    world_start(&a, flags, 1 << 30);
    world_start(&b, flags, 1 << 30);
    int rc_a = all_of(&a, p, n), rc_b = 0;
    for (size_t i = 0; rc_b == 0 && i < n; i++)
        rc_b = all_of(&b, p + i, 1);
    if (c10d_wants_input(&a.conn[0]) && c10d_wants_input(&b.conn[0])) {
        must(rc_a == rc_b && a.said.len == b.said.len);
        must(a.said.len == 0 || memcmp(a.said.data, b.said.data, a.said.len) == 0);
        must(store_keys(a.c10d.engine) == store_keys(b.c10d.engine));
    }
    world_end(&a);
    world_end(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dd_rd r = dd_rd_of(data, size);
    unsigned flags = dd_rd_u8(&r);
    if (flags & WHOLE_AND_BYTES) {
        whole_and_bytes(flags, r.p, dd_rd_left(&r));
        return 0;
    }
    struct world w;
    world_start(&w, flags, 200000);
    two_connections(&w, &r);
    world_end(&w);
    return 0;
}
