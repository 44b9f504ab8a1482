#include "agent/node_exchange.h"

#include "agent/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

struct waiting {
    LIST_ENTRY(waiting) entry;
    char name[EXCHANGE_NAME_MAX + 1];
    agent_exchange_fn *done; /* NULL: dropped */
    void *arg;
};

struct agent_exchanges {
    LIST_HEAD(, waiting) waiting;
    struct exchange *parts; /* NULL: nothing has come yet */
};

static struct waiting *find(const struct agent_exchanges *x, const char *name)
{
    struct waiting *w;
    LIST_FOREACH (w, &x->waiting, entry)
        if (strcmp(w->name, name) == 0)
            return w;
    return NULL;
}

static struct waiting *wait_for(struct agent *a, const char *name, agent_exchange_fn *done,
                                void *arg)
{
    if (a->exchanges == NULL)
        a->exchanges = calloc(1, sizeof(*a->exchanges));
    struct waiting *w = a->exchanges != NULL ? calloc(1, sizeof(*w)) : NULL;
    if (w == NULL)
        return NULL;
    memcpy(w->name, name, strlen(name) + 1);
    w->done = done;
    w->arg = arg;
    LIST_INSERT_HEAD(&a->exchanges->waiting, w, entry);
    return w;
}

static void forget(struct waiting *w)
{
    LIST_REMOVE(w, entry);
    free(w);
}

/* Without a link the round is at its end. */
static int send_part(struct agent *a, const char *name, const struct exchange_part *part)
{
    DD_AUTO(buf) struct dd_buf piece = DD_BUF_INIT(EXCHANGE_PIECE + 2 * EXCHANGE_NAME_MAX);
    size_t at = 0;
    int rc;
    do {
        dd_buf_clear(&piece);
        rc = exchange_piece_encode(&piece, (uint32_t)a->round->plan.round,
                                   (uint32_t)a->round->plan.node_rank, name, part, &at);
        if (rc == 0 && a->link != NULL)
            rc = link_send(a->link, FRAME_EXCHANGE, piece.data, piece.len);
    } while (rc == 0 && at < part->len);
    return rc == -EPIPE ? 0 : rc;
}

int agent_exchange(struct agent *a, const char *name, const void *part, size_t len,
                   agent_exchange_fn *done, void *arg, struct dd_err *err)
{
    const struct exchange_part p = {part, len};
    if (strlen(name) > EXCHANGE_NAME_MAX ||
        (a->exchanges != NULL && find(a->exchanges, name) != NULL))
        return dd_err_set(err, -EINVAL, "'%.80s' is no name for an exchange, or taken", name);
    if (len > EXCHANGE_MAX)
        return dd_err_set(err, -EMSGSIZE, "'%s': this node has more than %d MiB to tell the others",
                          name, EXCHANGE_MAX >> 20);
    struct waiting *w = wait_for(a, name, done, arg);
    if (w == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for '%s'", name);
    int rc = send_part(a, name, &p);
    if (rc == 0)
        return 0;
    forget(w);
    return dd_err_set(err, rc, "cannot tell the other nodes '%s': %s", name, strerror(-rc));
}

void agent_exchange_drop(struct agent *a, const void *arg)
{
    struct waiting *w;
    if (a->exchanges == NULL)
        return;
    LIST_FOREACH (w, &a->exchanges->waiting, entry)
        if (w->arg == arg)
            w->done = NULL; /* the parts still come, and are for nobody */
}

static int take(struct agent *a, const struct exchange_piece *p, struct dd_err *err)
{
    struct agent_exchanges *x = a->exchanges;
    int rc = x->parts == NULL ? exchange_new(&x->parts, a->round->plan.nnodes) : 0;
    return rc == 0 ? exchange_take(x->parts, p, err) : dd_err_set(err, rc, "out of memory");
}

static void all_is_there(struct agent *a, struct waiting *w, const char *name)
{
    struct exchange *parts = a->exchanges->parts;
    agent_exchange_fn *done = w->done;
    void *arg = w->arg;
    forget(w);
    if (done != NULL)
        done(arg, exchange_parts(parts, name), a->round->plan.nnodes);
    if (a->exchanges != NULL && a->exchanges->parts == parts) /* done may have ended the round */
        exchange_drop(parts, name);
}

void exchanges_take(struct agent *a, const struct frame *f)
{
    struct exchange_piece p;
    struct dd_err err = {0};
    if (exchange_piece_decode(&p, f->data, f->len) < 0) {
        dd_log(a->cfg->log, DD_LOG_WARN, "an exchange from the daemon is not understood");
        return;
    }
    if (p.node_rank == EXCHANGE_ASK && p.round == (uint32_t)a->round->plan.round) {
        horovod_asked(a, p.name);
        return;
    }
    struct waiting *w = a->exchanges != NULL ? find(a->exchanges, p.name) : NULL;
    if (w == NULL || p.round != (uint32_t)a->round->plan.round)
        return; /* of a round that is over here */
    int rc = take(a, &p, &err);
    if (rc < 0)
        dd_log(a->cfg->log, DD_LOG_WARN, "an exchange from the daemon: %s", err.text);
    if (rc == 1)
        all_is_there(a, w, p.name);
}

void exchanges_free(struct agent *a)
{
    struct agent_exchanges *x = a->exchanges;
    if (x == NULL)
        return;
    while (!LIST_EMPTY(&x->waiting))
        forget(LIST_FIRST(&x->waiting));
    exchange_free(x->parts);
    free(x);
    a->exchanges = NULL;
}
