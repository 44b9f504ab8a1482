#include "agent/node_exchange.h"

#include "agent/agent.h"
#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct waiting {
    LIST_ENTRY(waiting) entry;
    char name[EXCHANGE_NAME_MAX + 1];
    node_exchange_fn *done; /* NULL: dropped */
    void *arg;
};

struct node_exchange {
    LIST_HEAD(, waiting) waiting;
    struct exchange *parts; /* NULL: no part received yet */
};

static struct waiting *find_waiting(const struct node_exchange *x, const char *name)
{
    struct waiting *w;
    LIST_FOREACH (w, &x->waiting, entry)
        if (strcmp(w->name, name) == 0)
            return w;
    return NULL;
}

static struct waiting *node_exchange_wait_for(struct node_exchange *x, const char *name,
                                              node_exchange_fn *done, void *arg)
{
    struct waiting *w = calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    memcpy(w->name, name, strlen(name) + 1);
    w->done = done;
    w->arg = arg;
    LIST_INSERT_HEAD(&x->waiting, w, entry);
    return w;
}

static void forget_waiting(struct waiting *w)
{
    LIST_REMOVE(w, entry);
    free(w);
}

/* Send a part to the daemon. Without a link nothing is sent, and 0 is returned: the round is
 * ending. */
static int send_part(const struct round *r, const char *name, const struct exchange_part *part)
{
    DD_AUTO(buf) struct dd_buf piece = DD_BUF_INIT(EXCHANGE_PIECE + 2 * EXCHANGE_NAME_MAX);
    size_t at = 0;
    int rc;
    do {
        dd_buf_clear(&piece);
        rc = exchange_piece_encode(&piece, (uint32_t)r->plan.round, (uint32_t)r->plan.node_rank,
                                   name, part, &at);
        if (rc == 0)
            rc = r->port->send_piece(r->port_arg, piece.data, piece.len);
    } while (rc == 0 && at < part->len);
    return rc == -EPIPE ? 0 : rc;
}

int node_exchange_begin(const struct round *r, const char *name, const struct exchange_part *part,
                        node_exchange_fn *done, void *arg, struct dd_err *err)
{
    struct node_exchange *x = features_state(r, &node_exchange_feature);
    if (x == NULL || strlen(name) > EXCHANGE_NAME_MAX || find_waiting(x, name) != NULL)
        return dd_err_set(err, -EINVAL, "invalid or duplicate name of an exchange: '%.80s'", name);
    if (part->len > EXCHANGE_MAX)
        return dd_err_set(err, -EMSGSIZE, "exchange '%s': this node's part exceeds %d MiB", name,
                          EXCHANGE_MAX >> 20);
    struct waiting *w = node_exchange_wait_for(x, name, done, arg);
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for exchange '%s'", name);
    int rc = send_part(r, name, part);
    if (rc == 0)
        return 0;
    forget_waiting(w);
    return dd_err_set(err, rc, "cannot send exchange '%s' to the other nodes: %s", name,
                      strerror(-rc));
}

void node_exchange_drop(const struct round *r, const void *arg)
{
    const struct node_exchange *x = features_state(r, &node_exchange_feature);
    struct waiting *w;
    if (x == NULL)
        return;
    LIST_FOREACH (w, &x->waiting, entry)
        if (w->arg == arg)
            w->done = NULL; /* the parts that still arrive are dropped */
}

static void give_parts(struct node_exchange *x, const struct round *r, struct waiting *w,
                       const char *name)
{
    struct exchange *parts = x->parts;
    node_exchange_fn *done = w->done;
    void *arg = w->arg;
    forget_waiting(w);
    if (done != NULL)
        done(arg, exchange_parts(parts, name), r->plan.nnodes);
    if (features_state(r, &node_exchange_feature) == x) /* done() may have ended the round */
        exchange_drop(parts, name);
}

/* ---- hooks ---- */

static int node_exchange_prepare(void **state, const struct round *r, struct dd_err *err)
{
    (void)r;
    *state = calloc(1, sizeof(struct node_exchange));
    return *state != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

static void node_exchange_message(void *state, const struct round *r, const struct round_message *m)
{
    struct node_exchange *x = state;
    struct dd_err err = {0};
    struct waiting *w = m->type == ROUND_PIECE ? find_waiting(x, m->piece->name) : NULL;
    if (w == NULL || m->piece->node_rank == EXCHANGE_ASK)
        return;
    int rc = x->parts == NULL ? exchange_new(&x->parts, r->plan.nnodes) : 0;
    rc = rc == 0 ? exchange_take(x->parts, m->piece, &err) : dd_err_set(&err, rc, "out of memory");
    if (rc < 0)
        dd_log(r->cfg->log, DD_LOG_WARN, "cannot process an exchange message from the daemon: %s",
               err.text);
    if (rc == 1)
        give_parts(x, r, w, m->piece->name);
}

static void node_exchange_end(void *state, const struct round *r)
{
    struct node_exchange *x = state;
    (void)r;
    while (!LIST_EMPTY(&x->waiting))
        forget_waiting(LIST_FIRST(&x->waiting));
    exchange_free(x->parts);
    free(x);
}

const struct round_feature node_exchange_feature = {
    .name = "exchange",
    .prepare = node_exchange_prepare,
    .message = node_exchange_message,
    .end = node_exchange_end,
};
