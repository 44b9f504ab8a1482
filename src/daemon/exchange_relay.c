#include "daemon/exchange_relay.h"

#include "base/auto.h"
#include "net/link.h"

#include <errno.h>
#include <string.h>

/* Queue f for all nodes, which share one copy; takes f. */
static int exchange_relay_send(const struct exchange_relay *x, struct link_frames *f, int nnodes)
{
    int failed = 0;
    for (int k = 0; k < nnodes; k++) {
        int rc = x->send(x->arg, k, f);
        if (rc < 0 && rc != -EPIPE)
            failed = rc;
    }
    link_frames_free(f);
    return failed;
}

struct exchange_batch {
    const struct exchange_relay *relay;
    const char *name;
    int nnodes;
    struct link_frames *frames; /* not sent yet; NULL: none */
};

/* Add the next piece of a part. Send pieces in batches, because each link keeps a reference per
 * batch. */
static int exchange_batch_add(struct exchange_batch *b, uint32_t node_rank,
                              const struct exchange_part *part, size_t *at)
{
    DD_AUTO(buf) struct dd_buf piece = DD_BUF_INIT(EXCHANGE_PIECE + 2 * EXCHANGE_NAME_MAX);
    int rc = exchange_piece_encode(&piece, (uint32_t)b->relay->round, node_rank, b->name, part, at);
    if (b->frames == NULL)
        b->frames = link_frames_new();
    if (rc == 0)
        rc = b->frames == NULL ? -ENOMEM
                               : link_frames_add(b->frames, FRAME_EXCHANGE, piece.data, piece.len);
    if (rc < 0 || link_frames_size(b->frames) < EXCHANGE_PIECE)
        return rc;
    return exchange_relay_send(b->relay, DD_TAKE(b->frames), b->nnodes);
}

/* Send all parts of a complete exchange to all nodes. */
static int exchange_relay_distribute(struct exchange_relay *x, const char *name, int nnodes)
{
    struct exchange_batch b = {.relay = x, .name = name, .nnodes = nnodes};
    const struct exchange_part *parts = exchange_parts(x->exchange, name);
    int rc = 0;
    for (int k = 0; k < nnodes && rc == 0; k++) {
        size_t at = 0;
        if (!exchange_takes_part(x->exchange, name, k))
            continue;
        do
            rc = exchange_batch_add(&b, (uint32_t)k, &parts[k], &at);
        while (rc == 0 && at < parts[k].len);
    }
    exchange_drop(x->exchange, name);
    if (rc == 0 && b.frames != NULL)
        return exchange_relay_send(x, b.frames, nnodes);
    link_frames_free(b.frames);
    return rc;
}

/* Ask all nodes to send their parts of the exchange. */
static int exchange_relay_ask(struct exchange_relay *x, const char *name, int nnodes)
{
    struct exchange_batch b = {.relay = x, .name = name, .nnodes = nnodes};
    const struct exchange_part nothing = {0};
    size_t at = 0;
    int rc = exchange_batch_add(&b, EXCHANGE_ASK, &nothing, &at);
    if (rc == 0)
        return exchange_relay_send(x, b.frames, nnodes);
    link_frames_free(b.frames);
    return rc;
}

int exchange_relay_take(struct exchange_relay *x, const struct exchange_piece *p, int round,
                        int nnodes, struct dd_err *err)
{
    if (x->exchange != NULL && x->round != round)
        exchange_relay_done(x);
    int rc = x->exchange == NULL ? exchange_new(&x->exchange, nnodes) : 0;
    if (rc < 0)
        return dd_err_set(err, rc, "out of memory for exchange '%s'", p->name);
    x->round = round;
    const bool asks = p->name[0] == '?' && !exchange_is_open(x->exchange, p->name);
    const int taken = exchange_take(x->exchange, p, err);
    if (taken < 0)
        return taken;
    if (taken == 1)
        rc = exchange_relay_distribute(x, p->name, nnodes);
    else if (asks)
        rc = exchange_relay_ask(x, p->name, nnodes);
    return rc < 0 ? dd_err_set(err, rc, "cannot send exchange '%s' to the nodes: %s", p->name,
                               strerror(-rc))
                  : 0;
}

void exchange_relay_done(struct exchange_relay *x)
{
    exchange_free(x->exchange);
    x->exchange = NULL;
}
