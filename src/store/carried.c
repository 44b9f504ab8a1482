#include "store/carried.h"

#include "store/c10d_ops.h"
#include "store/relay_wire.h"

#include <errno.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#pragma GCC diagnostic ignored "-Wimplicit-fallthrough" /* clang: in uthash's HASH_JEN */

enum { CONNS_MAX = 65536, IOV_FEW = 16, PIECE = 32 * 1024 };

struct carried {
    struct c10d_conn c10d;
    struct store_carrier *carrier;
    struct store_out out;
    UT_hash_handle hh;
    TAILQ_ENTRY(carried) later;
    TAILQ_ENTRY(carried) full;
    uint32_t id;
    uint32_t told; /* number of answered requests, as last sent to the relay */
    bool is_later; /* on carrier->later */
    bool is_full;  /* on carrier->full */
    bool ended;    /* no input follows */
    bool broken;   /* a reply was lost for lack of memory: close the connection */
};

struct store_carrier {
    struct store_holder holder;
    struct c10d *c10d;
    struct store_carrier_cfg cfg;
    LIST_ENTRY(store_carrier) link;
    struct carried *conns;
    TAILQ_HEAD(carried_later, carried) later; /* connections that get another turn */
    TAILQ_HEAD(, carried) full;               /* connections whose output waits for CREDIT */
    struct dd_buf message;                    /* scratch */
    uint32_t round;
    bool begun;
    size_t in_flight; /* cost of messages sent without CREDIT */
    size_t taken;     /* cost of messages received without CREDIT */
};

/* ---- out ---- */

static void carrier_send(struct store_carrier *k, struct relay_msg m)
{
    m.round = k->round;
    k->in_flight += relay_wire_cost(&m);
    dd_buf_clear(&k->message);
    if (relay_wire_encode(&k->message, &m) == 0)
        k->cfg.send(k->cfg.arg, k->message.data, k->message.len);
    else
        k->cfg.send(k->cfg.arg, NULL, 0); /* end the link: the node needs the message */
}

static void carrier_close(struct store_carrier *k, uint32_t conn)
{
    carrier_send(k, (struct relay_msg){.type = RELAY_CLOSE, .conn = conn});
}

static void carrier_tell(struct store_holder *h, enum store_lease_news news, struct store_bytes key,
                         const struct store_value *value)
{
    static const enum relay_type types[] = {
        [STORE_VALUE] = RELAY_VALUE, [STORE_EACH] = RELAY_EACH, [STORE_RECALL] = RELAY_RECALL};
    struct store_carrier *k = (struct store_carrier *)(void *)h;
    struct relay_msg m = {.type = types[news], .key = key};
    if (news == STORE_VALUE)
        m.data = store_value_bytes(value);
    if (news == STORE_VALUE && k->in_flight + relay_wire_cost(&m) > RELAY_WINDOW)
        m = (struct relay_msg){.type = RELAY_EACH, .key = key};
    carrier_send(k, m);
}

/* Copy the next bytes of the output; return the number of bytes. */
static size_t carried_peek(const struct store_out *o, unsigned char *p, size_t max)
{
    struct iovec iov[IOV_FEW];
    const size_t n = store_out_iov(o, iov, IOV_FEW);
    size_t got = 0;
    for (size_t i = 0; i < n && got < max; i++) {
        const size_t part = iov[i].iov_len < max - got ? iov[i].iov_len : max - got;
        memcpy(p + got, iov[i].iov_base, part);
        got += part;
    }
    return got;
}

static void set_full(struct carried *c, bool on)
{
    if (on && !c->is_full)
        TAILQ_INSERT_TAIL(&c->carrier->full, c, full);
    if (!on && c->is_full)
        TAILQ_REMOVE(&c->carrier->full, c, full);
    c->is_full = on;
}

/* Send output, as far as the window permits. */
static void carried_flush(struct carried *c)
{
    unsigned char chunk[PIECE];
    struct store_carrier *k = c->carrier;
    if (c->ended)
        store_out_clear(&c->out);
    while (c->out.total > 0 && k->in_flight < RELAY_WINDOW) {
        const size_t n = carried_peek(&c->out, chunk, sizeof(chunk));
        if (n == c->out.total)
            c->told = c->c10d.executed - store_is_waiting(&c->c10d.waiter);
        store_out_sent(&c->out, n);
        carrier_send(k, (struct relay_msg){
                            .type = RELAY_DATA, .conn = c->id, .n = c->told, .data = {chunk, n}});
    }
    set_full(c, c->out.total > 0);
}

/* ---- connections ---- */

static struct carried *carried_of(struct c10d_conn *cc)
{
    return (struct carried *)(void *)((char *)cc - offsetof(struct carried, c10d));
}

static void set_later(struct carried *c, bool on)
{
    struct store_carrier *k = c->carrier;
    if (on && !c->is_later) {
        TAILQ_INSERT_TAIL(&k->later, c, later);
        k->cfg.soon(k->cfg.soon_arg);
    }
    if (!on && c->is_later)
        TAILQ_REMOVE(&k->later, c, later);
    c->is_later = on;
}

static void carried_resume(struct c10d_conn *cc)
{
    set_later(carried_of(cc), true);
}

static void carried_woken(struct c10d_conn *cc)
{
    struct carried *c = carried_of(cc);
    c->broken |= store_out_u8(&c->out, 0) < 0;
    if (cc->busy || c->broken)
        set_later(c, true);
    carried_flush(c);
}

static const struct c10d_calls carried_calls = {.woken = carried_woken, .resume = carried_resume};

static void carried_free(struct carried *c)
{
    struct store_carrier *k = c->carrier;
    HASH_DEL(k->conns, c);
    set_later(c, false);
    set_full(c, false);
    c10d_conn_done(&c->c10d);
    set_later(c, false);
    set_full(c, false);
    store_out_done(&c->out);
    free(c);
}

/* After requests were executed: send the replies; schedule the next turn; close the connection if
 * that is due. */
static void carried_settle(struct carried *c, int rc)
{
    struct store_carrier *k = c->carrier;
    carried_flush(c);
    if (rc == 0 && c->c10d.busy && c->out.total <= k->c10d->limits.max_output)
        set_later(c, true); /* otherwise a CREDIT continues the connection */
    if (rc == 0 && !c->broken && (!c->ended || c->c10d.busy || c->c10d.stalled))
        return;
    if (!c->ended)
        carrier_close(k, c->id);
    carried_free(c);
}

static void carried_turn(struct carried *c)
{
    struct dd_err err;
    int rc = 0;
    carried_flush(c);
    if (c->c10d.busy && c->out.total <= c->carrier->c10d->limits.max_output)
        rc = c->ended ? c10d_end(&c->c10d, &c->out, &err) : c10d_resume(&c->c10d, &c->out, &err);
    carried_settle(c, rc);
}

static struct carried *carried_find(const struct store_carrier *k, uint32_t id)
{
    struct carried *c = NULL;
    HASH_FIND(hh, k->conns, &id, sizeof(id), c);
    return c;
}

void store_carriers_continue(struct c10d *c10d)
{
    struct store_carrier *k;
    struct carried *c;
    LIST_FOREACH (k, &c10d->carriers, link) {
        const struct carried *last = TAILQ_LAST(&k->later, carried_later);
        for (bool more = last != NULL; more;) {
            c = TAILQ_FIRST(&k->later);
            more = c != last;
            set_later(c, false);
            carried_turn(c);
        }
    }
}

void store_carriers_end_waits(struct c10d *c10d, const char *prefix)
{
    struct store_carrier *k;
    struct carried *c;
    struct carried *next;
    LIST_FOREACH (k, &c10d->carriers, link)
        HASH_ITER(hh, k->conns, c, next)
        {
            if (!store_waits_for(&c->c10d.waiter, prefix))
                continue;
            carrier_close(k, c->id);
            carried_free(c);
        }
}

size_t store_carriers_conns(const struct c10d *c10d)
{
    const struct store_carrier *k;
    size_t n = 0;
    LIST_FOREACH (k, &c10d->carriers, link)
        n += HASH_COUNT(k->conns);
    return n;
}

/* ---- messages of the node ---- */

/* Close a connection beyond the limit; the node's other connections remain. */
static int carrier_open(struct store_carrier *k, const struct relay_msg *m)
{
    if (carried_find(k, m->conn) != NULL || m->n <= C10D_UNKNOWN || m->n > C10D_TABLE_C)
        return -EPROTO;
    struct carried *c = HASH_COUNT(k->conns) < CONNS_MAX ? calloc(1, sizeof(*c)) : NULL;
    if (c == NULL) {
        carrier_close(k, m->conn);
        return 0;
    }
    c->carrier = k;
    c->id = m->conn;
    c10d_conn_init(&c->c10d, k->c10d);
    c->c10d.calls = &carried_calls;
    c->c10d.table = m->n;
    store_out_init(&c->out, store_engine_account(k->c10d->engine), k->c10d->limits.max_request);
    HASH_ADD(hh, k->conns, id, sizeof(c->id), c);
    if (carried_find(k, c->id) != NULL) {
        k->c10d->carried_total++;
        return 0;
    }
    free(c);
    carrier_close(k, m->conn);
    return 0;
}

static int carrier_take_data(struct store_carrier *k, const struct relay_msg *m)
{
    struct carried *c = carried_find(k, m->conn);
    struct dd_err err;
    if (c != NULL) /* NULL: the connection was closed meanwhile */
        carried_settle(c, c10d_feed(&c->c10d, m->data.p, m->data.n, &c->out, &err));
    return 0;
}

static int carrier_take_close(struct store_carrier *k, const struct relay_msg *m)
{
    struct carried *c = carried_find(k, m->conn);
    struct dd_err err;
    if (c == NULL)
        return 0;
    c->ended = true;
    carried_settle(c, c10d_end(&c->c10d, &c->out, &err));
    return 0;
}

static int carrier_take_credit(struct store_carrier *k, const struct relay_msg *m)
{
    struct carried *c;
    k->in_flight -= m->n < k->in_flight ? m->n : k->in_flight;
    for (size_t n = HASH_COUNT(k->conns); n > 0 && k->in_flight < RELAY_WINDOW; n--) {
        if ((c = TAILQ_FIRST(&k->full)) == NULL)
            break;
        carried_settle(c, 0); /* sends output; the connection gets its next turn later */
    }
    return 0;
}

static int carrier_take_ask(struct store_carrier *k, const struct relay_msg *m)
{
    if (m->key.n > k->c10d->limits.max_key)
        return -EPROTO;
    store_lease_ask(&k->holder, m->key);
    return 0;
}

static int carrier_take_dropped(struct store_carrier *k, const struct relay_msg *m)
{
    (void)m;
    if (store_lease_answered(&k->holder))
        c10d_unstall(k->c10d);
    return 0;
}

static int carrier_begin(struct store_carrier *k, const struct relay_msg *m)
{
    store_carrier_reset(k);
    int rc = store_holder_add(k->c10d->engine, &k->holder);
    k->round = m->round;
    k->begun = rc == 0;
    return rc;
}

static int carrier_end(struct store_carrier *k, const struct relay_msg *m)
{
    (void)m;
    store_carrier_reset(k);
    return 0;
}

/* The daemon's own messages have no handler. */
static int (*const carrier_handlers[RELAY_TYPES])(struct store_carrier *,
                                                  const struct relay_msg *) = {
    [RELAY_BEGIN] = carrier_begin,        [RELAY_OPEN] = carrier_open,
    [RELAY_DATA] = carrier_take_data,     [RELAY_CLOSE] = carrier_take_close,
    [RELAY_ASK] = carrier_take_ask,       [RELAY_DROPPED] = carrier_take_dropped,
    [RELAY_CREDIT] = carrier_take_credit, [RELAY_END] = carrier_end,
};

int store_carrier_take(struct store_carrier *k, uint32_t round, const void *p, size_t n,
                       struct dd_err *err)
{
    struct relay_msg m;
    int rc = relay_wire_decode(&m, p, n);
    if (rc == 0 &&
        (m.round != round || (m.type != RELAY_BEGIN && !(k->begun && k->round == round))))
        return 0;
    if (rc == 0)
        rc = carrier_handlers[m.type] != NULL ? carrier_handlers[m.type](k, &m) : -EPROTO;
    if (rc < 0)
        return dd_err_set(err, rc,
                          rc == -ENOMEM ? "out of memory for a relay of the store"
                                        : "invalid message from a relay of the store");
    k->taken += relay_wire_cost(&m);
    if (k->taken >= RELAY_CREDIT_FROM) {
        carrier_send(k, (struct relay_msg){.type = RELAY_CREDIT, .n = (uint32_t)k->taken});
        k->taken = 0;
    }
    return 0;
}

/* ---- the role of the store ---- */

/* Operations that change keys. */
static const bool carried_writes[C10D_OPS] = {
    [C10D_SET] = true,        [C10D_COMPARE_SET] = true, [C10D_ADD] = true,
    [C10D_DELETE_KEY] = true, [C10D_APPEND] = true,      [C10D_MULTI_SET] = true,
    [C10D_QUEUE_PUSH] = true, [C10D_BARRIER] = true,
};

/* Recall the leases on the keys that a request is about to change. */
static int carried_may_run(struct c10d_conn *c, int op, struct dd_rd args)
{
    int all = 1;
    if (!carried_writes[op])
        return 1;
    for (uint64_t n = op == C10D_MULTI_SET ? dd_rd_u64(&args) : 1; n > 0; n--) {
        const uint64_t len = dd_rd_u64(&args);
        const struct store_bytes key = {dd_rd_bytes(&args, len), len};
        int rc = store_lease_recall(c->c10d->engine, key, op == C10D_QUEUE_PUSH);
        if (rc < 0)
            return rc;
        all = rc == 1 ? 0 : all;
        if (n > 1)
            (void)dd_rd_bytes(&args, dd_rd_u64(&args));
    }
    return all;
}

int store_carrier_new(struct store_carrier **ret, struct c10d *c10d,
                      const struct store_carrier_cfg *cfg)
{
    struct store_carrier *k = calloc(1, sizeof(*k));
    if (k == NULL)
        return -ENOMEM;
    *k = (struct store_carrier){.c10d = c10d,
                                .cfg = *cfg,
                                .holder = {.tell = carrier_tell},
                                .message = DD_BUF_INIT(1 << 20)};
    TAILQ_INIT(&k->later);
    TAILQ_INIT(&k->full);
    LIST_INSERT_HEAD(&c10d->carriers, k, link);
    c10d->may_run = carried_may_run;
    *ret = k;
    return 0;
}

void store_carrier_reset(struct store_carrier *k)
{
    struct carried *c;
    struct carried *next;
    k->begun = false;
    HASH_ITER(hh, k->conns, c, next)
    {
        c->ended = true;
        carried_free(c);
    }
    k->in_flight = k->taken = 0;
    if (store_holder_remove(&k->holder))
        c10d_unstall(k->c10d);
}

void store_carrier_free(struct store_carrier *k)
{
    if (k == NULL)
        return;
    store_carrier_reset(k);
    LIST_REMOVE(k, link);
    dd_buf_done(&k->message);
    free(k);
}

void store_carriers_reset(struct c10d *c10d)
{
    struct store_carrier *k;
    LIST_FOREACH (k, &c10d->carriers, link)
        store_carrier_reset(k);
}
