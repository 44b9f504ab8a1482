/* Names the ranks that still run a minute after the last other one has exited with 0: a rank may
 * hang at its end, for example in destroy_process_group(), where nothing else reports it. */
#ifndef DD_DAEMON_REMAINING_RANKS_H
#define DD_DAEMON_REMAINING_RANKS_H

#include "daemon/session.h"
#include "rdzv/machine.h"

struct event_base;
struct remaining_ranks;

struct remaining_ranks_cfg { /* all pointers are borrowed */
    struct event_base *base;
    const struct session_set *sessions;
    const struct rdzv *machine;
};

int remaining_ranks_new(struct remaining_ranks **ret,
                        const struct remaining_ranks_cfg *cfg); /* -ENOMEM */
void remaining_ranks_free(struct remaining_ranks *n);           /* NULL does nothing */

/* Take LEFT of an agent: ranks of a node whose other workers still run. */
void remaining_ranks_take(struct remaining_ranks *n, const struct msg_left *m);
/* Call when all workers of a node have ended, after the machine's step. */
void remaining_ranks_node_done(struct remaining_ranks *n);

#endif
