#include "relay_world.h"

#include <stdlib.h>
#include <string.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- clients ---- */

static struct world_client *client_of(struct c10d_conn *c)
{
    return (struct world_client *)(void *)((char *)c - offsetof(struct world_client, conn));
}

static void drain(struct world_client *c)
{
    struct iovec iov[4];
    while (c->out.total > 0) {
        size_t n = store_out_iov(&c->out, iov, 4), sent = 0;
        for (size_t k = 0; k < n; k++) {
            must(dd_buf_append(&c->said, iov[k].iov_base, iov[k].iov_len) == 0);
            sent += iov[k].iov_len;
        }
        store_out_sent(&c->out, sent);
    }
}

static void on_woken(struct c10d_conn *c)
{
    must(client_of(c)->open);
    must(store_out_u8(&client_of(c)->out, 0) == 0);
    drain(client_of(c));
}

static void on_resume(struct c10d_conn *c)
{
    must(client_of(c)->open && c->busy);
}

static const struct c10d_calls calls = {.woken = on_woken, .resume = on_resume};

static void on_reply(struct c10d_conn *c, const void *p, size_t n)
{
    must(client_of(c)->open);
    must(dd_buf_append(&client_of(c)->said, p, n) == 0);
}

static void shut(struct world_client *c)
{
    if (!c->open)
        return;
    c10d_conn_done(&c->conn);
    store_out_done(&c->out);
    c->open = false;
}

static void on_close(struct c10d_conn *c)
{
    shut(client_of(c));
}

static struct c10d *c10d_of_client(struct world *w, int i)
{
    return i == 0 ? &w->store : &w->nodes[(i - 1) / WORLD_PER_NODE].c10d;
}

void world_open(struct world *w, int i)
{
    static const unsigned char magic[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    struct world_client *c = &w->clients[i];
    struct c10d *c10d = c10d_of_client(w, i);
    if (c->open)
        return;
    c10d_conn_init(&c->conn, c10d);
    store_out_init(&c->out, store_engine_account(c10d->engine), 64 << 20);
    c->open = true;
    dd_buf_clear(&c->said);
    must(c10d_feed(&c->conn, magic, sizeof(magic), &c->out, NULL) == 0);
}

void world_close(struct world *w, int i)
{
    struct world_client *c = &w->clients[i];
    struct dd_err err;
    if (c->open && c->conn.pend != NULL && !c->conn.stalled)
        (void)c10d_end(&c->conn, &c->out, &err);
    shut(c);
}

static void run_busy_clients(struct world *w)
{
    struct dd_err err;
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < WORLD_CLIENTS; i++) {
            struct world_client *c = &w->clients[i];
            if (!c->open || !c->conn.busy)
                continue;
            again = true;
            int rc = c10d_resume(&c->conn, &c->out, &err);
            drain(c);
            if (rc < 0)
                shut(c);
        }
    }
}

/* Continue all clients that may. */
static void run_busy(struct world *w)
{
    do {
        run_busy_clients(w);
        w->soon = false;
        store_carriers_continue(&w->store);
    } while (w->soon);
}

bool world_send(struct world *w, int i, const void *p, size_t n)
{
    struct world_client *c = &w->clients[i];
    struct dd_err err;
    if (!c->open)
        return false;
    int rc = c10d_feed(&c->conn, p, n, &c->out, &err);
    drain(c);
    if (rc < 0)
        shut(c);
    run_busy(w);
    return c->open;
}

/* ---- messages ---- */

static void world_post(struct world_queue *q, const void *p, size_t n)
{
    struct world_msg *m = malloc(sizeof(*m) + n);
    must(m != NULL && n > 0);
    m->n = n;
    memcpy(m->p, p, n);
    STAILQ_INSERT_TAIL(q, m, link);
}

static void send_up(void *arg, const void *p, size_t n)
{
    world_post(&((struct world_node *)arg)->up, p, n);
}

static void send_down(void *arg, const void *p, size_t n)
{
    world_post(&((struct world_node *)arg)->down, p, n);
}

static void on_soon(void *arg)
{
    struct world *w = arg; /* run_busy() follows */
    w->soon = true;
}

bool world_deliver(struct world *w, int node, bool up)
{
    struct world_node *n = &w->nodes[node];
    struct world_queue *q = up ? &n->up : &n->down;
    struct world_msg *m = STAILQ_FIRST(q);
    struct dd_err err;
    if (m == NULL)
        return false;
    STAILQ_REMOVE_HEAD(q, link);
    int rc = up ? store_carrier_take(n->carrier, w->round, m->p, m->n, &err)
                : store_relay_take(n->relay, m->p, m->n, &err);
    must(rc == 0 || w->hostile);
    free(m);
    run_busy(w);
    return true;
}

void world_forge(struct world *w, int node, bool up, const void *p, size_t n)
{
    struct dd_err err;
    w->hostile = true;
    if (up)
        (void)store_carrier_take(w->nodes[node].carrier, w->round, p, n, &err);
    else
        (void)store_relay_take(w->nodes[node].relay, p, n, &err);
    run_busy(w);
}

void world_settle(struct world *w)
{
    for (bool some = true; some;) {
        some = false;
        for (int i = 0; i < WORLD_NODES; i++)
            for (int up = 0; up < 2; up++)
                some |= world_deliver(w, i, up == 0);
    }
}

/* ---- life ---- */

static void engine_start(struct c10d *c, const struct store_limits *limits)
{
    static const unsigned char seed[DD_SIPHASH_SEED] = {1};
    const struct store_engine_limits el = {limits->max_value, limits->max_bytes};
    *c = (struct c10d){.calls = &calls, .limits = *limits};
    must(store_engine_new(&c->engine, &el, seed) == 0);
}

static void relay_start(struct world *w, struct world_node *n)
{
    const struct store_relay_cfg cfg = {
        .round = w->round, .send = send_up, .arg = n, .reply = on_reply, .close = on_close};
    must(store_relay_new(&n->relay, &n->c10d, &cfg) == 0);
}

void world_start(struct world *w, const struct store_limits *limits)
{
    *w = (struct world){0};
    engine_start(&w->store, limits);
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *n = &w->nodes[i];
        const struct store_carrier_cfg cfg = {
            .send = send_down, .soon = on_soon, .arg = n, .soon_arg = w};
        n->world = w;
        STAILQ_INIT(&n->up);
        STAILQ_INIT(&n->down);
        engine_start(&n->c10d, limits);
        must(store_carrier_new(&n->carrier, &w->store, &cfg) == 0);
        relay_start(w, n);
    }
    for (int i = 0; i < WORLD_CLIENTS; i++) {
        w->clients[i].said = DD_BUF_INIT(256 << 20);
        world_open(w, i);
    }
}

static void close_all(struct world *w)
{
    for (int i = 0; i < WORLD_CLIENTS; i++)
        shut(&w->clients[i]);
}

void world_next_round(struct world *w)
{
    close_all(w);
    for (int i = 0; i < WORLD_NODES; i++) {
        store_relay_free(w->nodes[i].relay);
        store_engine_clear(w->nodes[i].c10d.engine);
    }
    store_engine_clear(w->store.engine);
    store_carriers_reset(&w->store);
    w->round++;
    for (int i = 0; i < WORLD_NODES; i++)
        relay_start(w, &w->nodes[i]);
    for (int i = 0; i < WORLD_CLIENTS; i++)
        world_open(w, i);
}

static void engine_end(struct c10d *c)
{
    must(store_waiters(c->engine) == 0);
    store_engine_clear(c->engine);
    must(store_engine_account(c->engine)->used == 0);
    store_engine_free(c->engine);
}

static void world_drop(struct world_queue *q)
{
    struct world_msg *m;
    while ((m = STAILQ_FIRST(q)) != NULL) {
        STAILQ_REMOVE_HEAD(q, link);
        free(m);
    }
}

void world_end(struct world *w)
{
    close_all(w);
    world_settle(w);
    must(store_carriers_conns(&w->store) == 0 || w->hostile);
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *n = &w->nodes[i];
        store_relay_free(n->relay);
        store_carrier_free(n->carrier);
        world_drop(&n->up);
        world_drop(&n->down);
        engine_end(&n->c10d);
    }
    engine_end(&w->store);
    for (int i = 0; i < WORLD_CLIENTS; i++)
        dd_buf_done(&w->clients[i].said);
}
