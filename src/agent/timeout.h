/* --timeout: the leader ends the job when the time is over. An agent that has found no leader by
 * then gives up. */
#ifndef DD_AGENT_TIMEOUT_H
#define DD_AGENT_TIMEOUT_H

#include "agent/round_history.h"
#include "agent/signals.h"

struct timeout;

struct timeout_parts {
    struct agent_loop *loop;
    struct uplink *uplink;
    const struct round_history *history;
    struct signals *signals;
};

/* Create the timer. ns: limit, counted from start_ns of the agent's configuration; 0: none.
 * -ENOMEM. */
int timeout_new(struct timeout **ret, const struct timeout_parts *parts, uint64_t ns);
/* Call at the start, and on a node that becomes the leader. */
int timeout_start(struct timeout *t, struct dd_err *err);
void timeout_stop(struct timeout *t); /* call when another node leads */
void timeout_free(struct timeout *t); /* NULL is fine */

#endif
