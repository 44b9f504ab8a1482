/* Gives what every node of a round sends to every node (rdzv/exchange.h). */
#ifndef DD_DAEMON_EXCHANGE_RELAY_H
#define DD_DAEMON_EXCHANGE_RELAY_H

#include "base/err.h"
#include "rdzv/exchange.h"

struct link_frames;

struct exchange_relay {
    /* Queues the frames for the node with that rank; 0 also when the node is gone. */
    int (*send)(void *arg, int node_rank, struct link_frames *f);
    void *arg;
    struct exchange *exchange; /* NULL: none in this round yet */
    int round;
};

/* Takes a piece that a node of that round has sent. < 0: a node would wait forever for a piece, so
 * the job has to end. */
int exchange_relay_take(struct exchange_relay *x, const struct exchange_piece *p, int round,
                        int nnodes, struct dd_err *err);
void exchange_relay_done(struct exchange_relay *x);

#endif
