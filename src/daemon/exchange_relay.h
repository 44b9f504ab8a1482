/* Relay an exchange: collect one part from every node of a round and send all parts to every node
 * (rdzv/exchange.h). */
#ifndef DD_DAEMON_EXCHANGE_RELAY_H
#define DD_DAEMON_EXCHANGE_RELAY_H

#include "base/err.h"
#include "rdzv/exchange.h"

struct link_frames;

struct exchange_relay {
    /* Queue the frames for the node with that rank; also 0 if the node is gone. */
    int (*send)(void *arg, int node_rank, struct link_frames *f);
    void *arg;
    struct exchange *exchange; /* NULL: none in this round */
    int round;
};

/* Take a piece that a node of that round has sent. < 0: some node would wait forever for a piece,
 * so the job must end. */
int exchange_relay_take(struct exchange_relay *x, const struct exchange_piece *p, int round,
                        int nnodes, struct dd_err *err);
void exchange_relay_done(struct exchange_relay *x);

#endif
