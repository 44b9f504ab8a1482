/* What every node of a round gives, given to every node (rdzv/exchange.h). */
#include "daemon/inner.h"
#include "rdzv/exchange.h"

#include <errno.h>
#include <string.h>

/* Takes f; the nodes share it until the last has it. A node that lacks a piece would wait for ever:
 * what cannot be sent is an error of the job. */
static int send_to_all(struct daemon *d, struct link_frames *f, int nnodes)
{
    int failed = 0;
    for (int k = 0; k < nnodes; k++) {
        int id = rdzv_id_of_rank(d->machine, k);
        struct guest *g = id >= 0 ? d->by_id[id] : NULL;
        int rc = g != NULL ? link_send_frames(g->link, f) : 0;
        if (rc < 0 && rc != -EPIPE)
            failed = rc;
    }
    link_frames_free(f);
    return failed;
}

struct hand_out {
    struct daemon *d;
    const char *name;
    int nnodes;
    struct link_frames *frames; /* not yet sent; NULL: none */
};

/* The next piece of that part: it travels with others, since each node notes what it has still to
 * be sent. */
static int add_piece(struct hand_out *h, uint32_t node_rank, const struct exchange_part *part,
                     size_t *at)
{
    DD_AUTO(buf) struct dd_buf piece = DD_BUF_INIT(EXCHANGE_PIECE + 2 * EXCHANGE_NAME_MAX);
    int rc = exchange_piece_encode(&piece, (uint32_t)h->d->exchange_round, node_rank, h->name, part,
                                   at);
    if (h->frames == NULL)
        h->frames = link_frames_new();
    if (rc == 0)
        rc = h->frames == NULL ? -ENOMEM
                               : link_frames_add(h->frames, FRAME_EXCHANGE, piece.data, piece.len);
    if (rc < 0 || link_frames_size(h->frames) < EXCHANGE_PIECE)
        return rc;
    return send_to_all(h->d, DD_TAKE(h->frames), h->nnodes);
}

static int hand_out(struct daemon *d, const char *name, int nnodes)
{
    struct hand_out h = {.d = d, .name = name, .nnodes = nnodes};
    const struct exchange_part *parts = exchange_parts(d->exchange, name);
    int rc = 0;
    for (int k = 0; k < nnodes && rc == 0; k++) {
        size_t at = 0;
        if (!exchange_takes_part(d->exchange, name, k))
            continue;
        do
            rc = add_piece(&h, (uint32_t)k, &parts[k], &at);
        while (rc == 0 && at < parts[k].len);
    }
    exchange_drop(d->exchange, name);
    if (rc == 0 && h.frames != NULL)
        return send_to_all(d, h.frames, nnodes);
    link_frames_free(h.frames);
    return rc;
}

static int ask_for(struct daemon *d, const char *name, int nnodes)
{
    struct hand_out h = {.d = d, .name = name, .nnodes = nnodes};
    const struct exchange_part nothing = {0};
    size_t at = 0;
    int rc = add_piece(&h, EXCHANGE_ASK, &nothing, &at);
    if (rc == 0)
        return send_to_all(d, h.frames, nnodes);
    link_frames_free(h.frames);
    return rc;
}

static int take(struct daemon *d, const struct exchange_piece *p, struct dd_err *err)
{
    int nnodes = rdzv_planned(d->machine)->n;
    int round = rdzv_round(d->machine);
    if (d->exchange != NULL && d->exchange_round != round)
        guests_free_exchange(d);
    int rc = d->exchange == NULL ? exchange_new(&d->exchange, nnodes) : 0;
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory for '%s'", p->name);
    d->exchange_round = round;
    const bool asks = p->name[0] == '?' && !exchange_is_open(d->exchange, p->name);
    rc = exchange_take(d->exchange, p, err);
    const int taken = rc;
    if (taken == 0 && asks)
        rc = ask_for(d, p->name, nnodes);
    else if (taken == 1)
        rc = hand_out(d, p->name, nnodes);
    return taken >= 0 && rc < 0
               ? dd_err_set(err, rc, "the nodes cannot be told '%s': %s", p->name, strerror(-rc))
               : rc;
}

void guest_take_exchange(struct guest *g, const struct frame *f)
{
    struct daemon *d = g->daemon;
    struct exchange_piece p;
    struct dd_err err;
    if (g->id < 0 || exchange_piece_decode(&p, f->data, f->len) < 0) {
        dd_log(d->cfg.log, DD_LOG_WARN, "an exchange of %s is not understood", g->name);
        return;
    }
    if (rdzv_state(d->machine) != RDZV_RUNNING || p.round != (uint32_t)rdzv_round(d->machine))
        return; /* that round is over */
    if (p.node_rank > INT32_MAX || rdzv_id_of_rank(d->machine, (int)p.node_rank) != g->id) {
        dd_log(d->cfg.log, DD_LOG_WARN, "%s has no part in '%s' as node rank %u", g->name, p.name,
               p.node_rank);
        return;
    }
    if (take(d, &p, &err) < 0)
        daemon_step(d,
                    &(struct rdzv_event){.kind = RDZV_STOP_REQUEST, .id = g->id, .text = err.text});
}

void guests_free_exchange(struct daemon *d)
{
    exchange_free(d->exchange);
    d->exchange = NULL;
}
