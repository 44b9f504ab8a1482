#include "store/store_relay.h"

#include "store/c10d_ops.h"
#include "store/engine_inner.h"
#include "store/relay_wire.h"

#include <errno.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#pragma GCC diagnostic ignored "-Wimplicit-fallthrough" /* clang: in uthash's HASH_JEN */

enum {
    COPIES_MAX = 512 << 20, /* bytes of the account above which no copy is kept */
    NAMES_MAX = 65536, /* limit of the names for which the relay has asked, and of those for which
                          each client asks */
    LONG_MAX_AT_ONCE = 8,      /* unanswered requests of a client that may have long replies */
    BEHIND_WAIT_MAX = 65536,   /* bytes of requests that a client sends behind a wait */
    QUEUED_MAX = RELAY_WINDOW, /* cost of queued messages above which clients are stalled */
};

/* A worker's connection to the daemon. */
struct relay_conn {
    UT_hash_handle hh;
    struct c10d_conn *conn;
    uint32_t id;
    uint32_t sent, answered;          /* numbers of requests, modulo 2^32 */
    uint32_t longs[LONG_MAX_AT_ONCE]; /* `sent` of the unanswered requests with long replies */
    size_t longs_n;
    uint32_t wait; /* `sent` of the last wait */
    bool waits;    /* the last wait is not answered yet */
    size_t behind; /* bytes of requests sent after the last wait */
};

/* A name without a copy. */
struct relay_name {
    UT_hash_handle hh;
    bool each; /* each client asks for itself; false: the relay has asked the daemon */
    size_t n;
    unsigned char key[];
};

struct relay_queued {
    STAILQ_ENTRY(relay_queued) link;
    size_t n, cost; /* bytes of the message; its relay_wire_cost() */
    unsigned char p[];
};

struct store_relay {
    struct c10d *c10d;
    struct store_relay_cfg cfg;
    struct c10d_op_info ops[C10D_OPS];
    struct relay_conn *conns;
    struct relay_name *names;
    size_t names_n[2];                 /* number of names by .each */
    STAILQ_HEAD(, relay_queued) queue; /* messages that wait for CREDIT */
    size_t queued;                     /* total cost of the queue */
    size_t in_flight;                  /* cost of messages sent without CREDIT */
    size_t taken;                      /* cost of messages received without CREDIT */
    uint32_t last_id;
    struct dd_buf message; /* scratch */
    struct store_relay_stats stats;
};

/* ---- to the daemon ---- */

static void relay_send_now(struct store_relay *y, const void *p, size_t n, size_t cost)
{
    y->in_flight += cost;
    y->cfg.send(y->cfg.arg, p, n);
}

/* Send a message, after the queued ones. 0 or -ENOMEM. */
static int relay_send(struct store_relay *y, struct relay_msg m)
{
    m.round = y->cfg.round;
    dd_buf_clear(&y->message);
    int rc = relay_wire_encode(&y->message, &m);
    if (rc < 0)
        return rc;
    const size_t cost = relay_wire_cost(&m);
    if (STAILQ_EMPTY(&y->queue) && y->in_flight + cost <= RELAY_WINDOW) {
        relay_send_now(y, y->message.data, y->message.len, cost);
        return 0;
    }
    struct relay_queued *q = malloc(sizeof(*q) + y->message.len);
    if (q == NULL)
        return -ENOMEM;
    q->n = y->message.len;
    q->cost = cost;
    memcpy(q->p, y->message.data, q->n);
    STAILQ_INSERT_TAIL(&y->queue, q, link);
    y->queued += q->cost;
    return 0;
}

/* Send a message without which a worker or the daemon would wait forever; if that fails, end the
 * link. */
static void relay_must_send(struct store_relay *y, struct relay_msg m)
{
    if (relay_send(y, m) < 0)
        y->cfg.send(y->cfg.arg, NULL, 0);
}

static void relay_send_queued(struct store_relay *y)
{
    struct relay_queued *q;
    while ((q = STAILQ_FIRST(&y->queue)) != NULL && y->in_flight + q->cost <= RELAY_WINDOW) {
        STAILQ_REMOVE_HEAD(&y->queue, link);
        y->queued -= q->cost;
        relay_send_now(y, q->p, q->n, q->cost);
        free(q);
    }
    if (y->queued <= QUEUED_MAX / 2)
        c10d_unstall(y->c10d);
}

/* ---- connections to the daemon ---- */

static struct store_relay *relay_of(const struct c10d_request *r)
{
    return r->conn->c10d->relay;
}

static struct relay_conn *relay_conn_find(const struct store_relay *y, uint32_t id)
{
    struct relay_conn *c = NULL;
    HASH_FIND(hh, y->conns, &id, sizeof(id), c);
    return c;
}

static int relay_conn_of(struct store_relay *y, struct c10d_conn *conn, struct relay_conn **ret)
{
    struct relay_conn *c = *ret = conn->peer;
    if (c != NULL)
        return 0;
    c = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->conn = conn;
    do
        c->id = ++y->last_id;
    while (relay_conn_find(y, c->id) != NULL);
    HASH_ADD(hh, y->conns, id, sizeof(c->id), c);
    if (relay_conn_find(y, c->id) == NULL) {
        free(c);
        return -ENOMEM;
    }
    *ret = conn->peer = c;
    return relay_send(y, (struct relay_msg){.type = RELAY_OPEN, .conn = c->id, .n = conn->table});
}

static bool relay_is_settled(const struct c10d_conn *conn)
{
    const struct relay_conn *c = conn->peer;
    return c == NULL || c->sent == c->answered;
}

/* Operations whose replies contain values or keys. */
static const bool relay_is_long[C10D_OPS] = {
    [C10D_GET] = true,       [C10D_MULTI_GET] = true, [C10D_COMPARE_SET] = true,
    [C10D_QUEUE_POP] = true, [C10D_LIST_KEYS] = true,
};

/* True if the client has sent as much behind a wait as a direct connection buffers. */
static bool relay_is_behind(const struct relay_conn *c)
{
    return c->waits && c->behind >= BEHIND_WAIT_MAX;
}

/* Forget the requests that the daemon has answered. True if they may have stalled the client. */
static bool relay_forget_answered(struct relay_conn *c)
{
    const bool full = c->longs_n == LONG_MAX_AT_ONCE, behind = relay_is_behind(c);
    size_t kept = 0;
    for (size_t i = 0; i < c->longs_n; i++)
        if ((int32_t)(c->answered - c->longs[i]) < 0)
            c->longs[kept++] = c->longs[i];
    c->longs_n = kept;
    c->waits = c->waits && (int32_t)(c->answered - c->wait) < 0;
    return (full && kept < LONG_MAX_AT_ONCE) || (behind && !c->waits);
}

static void relay_note_request(struct relay_conn *c, int op, size_t n)
{
    c->sent++;
    if (relay_is_long[op] && c->longs_n < LONG_MAX_AT_ONCE)
        c->longs[c->longs_n++] = c->sent;
    c->behind = c->waits ? c->behind + n : 0;
    if (op == C10D_WAIT || op == C10D_BARRIER) {
        c->wait = c->sent;
        c->waits = true;
    }
}

/* Send a whole request of a client. */
static int relay_request(struct store_relay *y, struct c10d_conn *conn, struct store_bytes raw)
{
    struct relay_conn *c;
    int rc = relay_conn_of(y, conn, &c);
    y->stats.forwarded++;
    for (size_t at = 0; rc == 0 && at < raw.n; at += RELAY_CHUNK) {
        const size_t n = raw.n - at < RELAY_CHUNK ? raw.n - at : RELAY_CHUNK;
        rc = relay_send(
            y, (struct relay_msg){.type = RELAY_DATA, .conn = c->id, .data = {raw.p + at, n}});
    }
    if (rc < 0)
        return rc;
    relay_note_request(c, c10d_op_of(conn->table, raw.p[0]), raw.n);
    return 0;
}

static int relay_forward(struct c10d_request *r, struct dd_err *err)
{
    (void)err;
    return relay_request(relay_of(r), r->conn, r->raw);
}

static void relay_on_done(struct c10d_conn *conn)
{
    struct store_relay *y = conn->c10d->relay;
    struct relay_conn *c = conn->peer;
    if (c == NULL)
        return;
    conn->peer = NULL;
    HASH_DEL(y->conns, c);
    relay_must_send(y, (struct relay_msg){.type = RELAY_CLOSE, .conn = c->id});
    free(c);
}

/* ---- names ---- */

static struct relay_name *relay_name_find(const struct store_relay *y, struct store_bytes key)
{
    struct relay_name *m = NULL;
    HASH_FIND(hh, y->names, key.p, key.n, m);
    return m;
}

static void relay_name_drop(struct store_relay *y, struct relay_name *m)
{
    if (m == NULL)
        return;
    HASH_DEL(y->names, m);
    y->names_n[m->each]--;
    store_account_give(store_engine_account(y->c10d->engine), sizeof(*m) + m->n);
    free(m);
}

/* Make room: the next wait for such a name makes the relay ask the daemon again. */
static void relay_names_forget_each(struct store_relay *y)
{
    struct relay_name *m;
    struct relay_name *next;
    HASH_ITER(hh, y->names, m, next)
    {
        if (m->each)
            relay_name_drop(y, m);
    }
}

/* Add a name. The daemon keeps a name that the relay has asked for even if no client waits any
 * more, so the number of these is limited: -ENOSPC. */
static int relay_name_add(struct store_relay *y, struct store_bytes key, bool each)
{
    struct store_account *account = store_engine_account(y->c10d->engine);
    if (y->names_n[each] >= NAMES_MAX && !each)
        return -ENOSPC;
    if (y->names_n[each] >= NAMES_MAX)
        relay_names_forget_each(y);
    int rc = store_account_take(account, sizeof(struct relay_name) + key.n);
    if (rc < 0)
        return rc;
    struct relay_name *m = malloc(sizeof(*m) + key.n);
    if (m == NULL) {
        store_account_give(account, sizeof(*m) + key.n);
        return -ENOMEM;
    }
    m->each = each;
    m->n = key.n;
    if (key.n > 0)
        memcpy(m->key, key.p, key.n);
    HASH_ADD_KEYPTR(hh, y->names, m->key, m->n, m);
    if (relay_name_find(y, key) == m) {
        y->names_n[each]++;
        return 0;
    }
    store_account_give(account, sizeof(*m) + key.n);
    free(m);
    return -ENOMEM;
}

/* ---- operations ---- */

static struct store_bytes relay_key(struct dd_rd *r)
{
    const uint64_t n = dd_rd_u64(r);
    return (struct store_bytes){dd_rd_bytes(r, n), n};
}

/* True if the client may be answered here, and this node has copies of all keys. */
static bool relay_has_all(const struct c10d_request *r, uint64_t n, struct dd_rd keys)
{
    const struct c10d *c10d = r->conn->c10d;
    if (!relay_is_settled(r->conn))
        return false;
    for (; n > 0; n--)
        if (store_get(c10d->engine, relay_key(&keys)) == NULL)
            return false;
    return true;
}

static int relay_here(struct c10d_request *r, int op, struct dd_err *err)
{
    relay_of(r)->stats.here++;
    return c10d_ops[op].run(r, err);
}

static int relay_get(struct c10d_request *r, struct dd_err *err)
{
    return relay_has_all(r, 1, r->args) ? relay_here(r, C10D_GET, err) : relay_forward(r, err);
}

static int relay_counted(struct c10d_request *r, int op, struct dd_err *err)
{
    struct dd_rd keys = r->args;
    const uint64_t n = dd_rd_u64(&keys);
    return relay_has_all(r, n, keys) ? relay_here(r, op, err) : relay_forward(r, err);
}

static int relay_multi_get(struct c10d_request *r, struct dd_err *err)
{
    return relay_counted(r, C10D_MULTI_GET, err);
}

static int relay_check(struct c10d_request *r, struct dd_err *err)
{
    return relay_counted(r, C10D_CHECK, err);
}

/* True for keys of libddrun: the daemon closes connections that wait for such a key if it will not
 * be set any more. */
static bool relay_is_reserved(struct store_bytes key)
{
    static const char own[] = "ddrun/";
    return key.n >= sizeof(own) - 1 && memcmp(key.p, own, sizeof(own) - 1) == 0;
}

/* Wait here for one key, for which the relay asks the daemon once. Forward the wait if there is no
 * room for the name. */
static int relay_wait_one(struct c10d_request *r, struct store_bytes key, struct dd_err *err)
{
    struct store_relay *y = relay_of(r);
    const struct relay_name *m = relay_name_find(y, key);
    if ((m != NULL && m->each) || relay_is_reserved(key) ||
        (m == NULL && relay_name_add(y, key, false) < 0))
        return relay_forward(r, err);
    if (m == NULL)
        relay_must_send(y, (struct relay_msg){.type = RELAY_ASK, .key = key});
    return relay_here(r, C10D_WAIT, err);
}

static int relay_wait(struct c10d_request *r, struct dd_err *err)
{
    struct dd_rd keys = r->args;
    const uint64_t n = dd_rd_u64(&keys);
    if (relay_has_all(r, n, keys))
        return relay_here(r, C10D_WAIT, err);
    if (n != 1 || !relay_is_settled(r->conn))
        return relay_forward(r, err);
    return relay_wait_one(r, relay_key(&keys), err);
}

/* The wait may be in this engine while the daemon has not replied to a later PING yet. */
static int relay_cancel_wait(struct c10d_request *r, struct dd_err *err)
{
    if (relay_is_settled(r->conn))
        return relay_here(r, C10D_CANCEL_WAIT, err);
    store_cancel(r->conn->c10d->engine, &r->conn->waiter);
    return relay_forward(r, err);
}

/* Stall the connection while too many bytes wait for the link, or too many of the client's requests
 * are unanswered. */
static int relay_may_run(struct c10d_conn *c, int op, struct dd_rd args)
{
    const struct store_relay *y = c->c10d->relay;
    const struct relay_conn *conn = c->peer;
    (void)args;
    if (y->queued > QUEUED_MAX)
        return 0;
    /* A request that ends the wait must pass, and so must all requests before it. */
    if (conn == NULL || c->cancels)
        return 1;
    return !(relay_is_long[op] && conn->longs_n == LONG_MAX_AT_ONCE) && !relay_is_behind(conn);
}

/* ---- messages of the daemon ---- */

/* Forward the waits of the clients that wait here for the key, in the order of their arrival. */
static void relay_wait_each(struct store_relay *y, struct store_bytes key)
{
    static const unsigned char codes[] = {
        [C10D_TABLE_A] = 5, [C10D_TABLE_B] = 5, [C10D_TABLE_C] = C10D_WAIT};
    DD_AUTO(buf) struct dd_buf raw = DD_BUF_INIT(key.n + 64);
    struct store_entry *en;
    while ((en = store_table_find(&y->c10d->engine->names, key)) != NULL &&
           !TAILQ_EMPTY(&en->waiters)) {
        struct store_waiter *w = TAILQ_FIRST(&en->waiters)->waiter;
        struct c10d_conn *c = (struct c10d_conn *)(void *)((char *)w -
                                                           offsetof(struct c10d_conn, waiter));
        dd_buf_clear(&raw);
        c10d_end_wait(c);
        if (dd_wr_u8(&raw, codes[c->table]) < 0 || dd_wr_le(&raw, 1, 8) < 0 ||
            dd_wr_le(&raw, key.n, 8) < 0 || dd_buf_append(&raw, key.p, key.n) < 0 ||
            relay_request(y, c, (struct store_bytes){raw.data, raw.len}) < 0)
            y->cfg.close(c);
    }
}

static void relay_each(struct store_relay *y, struct store_bytes key)
{
    relay_name_drop(y, relay_name_find(y, key));
    (void)relay_name_add(y, key, true);
    relay_wait_each(y, key);
}

static int relay_take_value(struct store_relay *y, const struct relay_msg *m)
{
    struct store_engine *e = y->c10d->engine;
    relay_name_drop(y, relay_name_find(y, m->key));
    if (store_engine_account(e)->used > COPIES_MAX || c10d_set(y->c10d, m->key, m->data) < 0)
        relay_wait_each(y, m->key);
    return 0;
}

static int relay_take_each(struct store_relay *y, const struct relay_msg *m)
{
    relay_each(y, m->key);
    return 0;
}

static int relay_take_recall(struct store_relay *y, const struct relay_msg *m)
{
    (void)store_delete(y->c10d->engine, m->key);
    relay_each(y, m->key);
    relay_must_send(y, (struct relay_msg){.type = RELAY_DROPPED});
    return 0;
}

static int relay_take_data(struct store_relay *y, const struct relay_msg *m)
{
    struct relay_conn *c = relay_conn_find(y, m->conn);
    if (c == NULL)
        return 0; /* the connection was closed meanwhile */
    c->answered = m->n;
    if (relay_forget_answered(c))
        c10d_unstall(y->c10d);
    y->cfg.reply(c->conn, m->data.p, m->data.n);
    return 0;
}

static int relay_take_close(struct store_relay *y, const struct relay_msg *m)
{
    const struct relay_conn *c = relay_conn_find(y, m->conn);
    if (c != NULL)
        y->cfg.close(c->conn);
    return 0;
}

static int relay_take_credit(struct store_relay *y, const struct relay_msg *m)
{
    y->in_flight -= m->n < y->in_flight ? m->n : y->in_flight;
    relay_send_queued(y);
    return 0;
}

/* The relay's own messages have no handler. */
static int (*const relay_handlers[RELAY_TYPES])(struct store_relay *, const struct relay_msg *) = {
    [RELAY_DATA] = relay_take_data,     [RELAY_CLOSE] = relay_take_close,
    [RELAY_VALUE] = relay_take_value,   [RELAY_EACH] = relay_take_each,
    [RELAY_RECALL] = relay_take_recall, [RELAY_CREDIT] = relay_take_credit,
};

int store_relay_take(struct store_relay *y, const void *p, size_t n, struct dd_err *err)
{
    struct relay_msg m;
    int rc = relay_wire_decode(&m, p, n);
    if (rc == 0 && m.round != y->cfg.round)
        return 0;
    if (rc == 0)
        rc = relay_handlers[m.type] != NULL ? relay_handlers[m.type](y, &m) : -EPROTO;
    if (rc < 0)
        return dd_err_set(err, rc,
                          rc == -ENOMEM
                              ? "out of memory for the relay of the store"
                              : "malformed message from the daemon to the relay of the store");
    y->taken += relay_wire_cost(&m);
    if (y->taken >= RELAY_CREDIT_FROM) {
        relay_must_send(y, (struct relay_msg){.type = RELAY_CREDIT, .n = (uint32_t)y->taken});
        y->taken = 0;
    }
    return 0;
}

/* ---- interface ---- */

static void relay_make_ops(struct store_relay *y)
{
    static int (*const own[C10D_OPS])(struct c10d_request *, struct dd_err *) = {
        [C10D_GET] = relay_get,
        [C10D_CHECK] = relay_check,
        [C10D_WAIT] = relay_wait,
        [C10D_MULTI_GET] = relay_multi_get,
        [C10D_CANCEL_WAIT] = relay_cancel_wait,
    };
    for (int op = 0; op < C10D_OPS; op++) {
        y->ops[op] = c10d_ops[op];
        if (op != C10D_VALIDATE)
            y->ops[op].run = own[op] != NULL ? own[op] : relay_forward;
    }
}

int store_relay_new(struct store_relay **ret, struct c10d *c10d, const struct store_relay_cfg *cfg)
{
    struct store_relay *y = calloc(1, sizeof(*y));
    if (y == NULL)
        return -ENOMEM;
    *y = (struct store_relay){.c10d = c10d, .cfg = *cfg, .message = DD_BUF_INIT(1 << 20)};
    STAILQ_INIT(&y->queue);
    relay_make_ops(y);
    c10d->relay = y;
    c10d->ops = y->ops;
    c10d->may_run = relay_may_run;
    c10d->on_done = relay_on_done;
    *ret = y;
    relay_must_send(y, (struct relay_msg){.type = RELAY_BEGIN});
    return 0;
}

void store_relay_free(struct store_relay *y)
{
    struct relay_queued *q;
    struct relay_name *m;
    struct relay_name *next;
    if (y == NULL)
        return;
    (void)relay_send(y, (struct relay_msg){.type = RELAY_END});
    while ((q = STAILQ_FIRST(&y->queue)) != NULL) {
        STAILQ_REMOVE_HEAD(&y->queue, link);
        free(q);
    }
    HASH_ITER(hh, y->names, m, next)
    {
        relay_name_drop(y, m);
    }
    dd_buf_done(&y->message);
    free(y);
}

void store_relay_stats(const struct store_relay *y, struct store_relay_stats *ret)
{
    *ret = y->stats;
}
