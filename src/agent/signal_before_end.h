/* --signal-before-end: the leader finds the end of the allocation in the environment, or by one
 * command of the scheduler. At the configured time before it, the leader sends the signal to the
 * workers of all nodes. */
#ifndef DD_AGENT_SIGNAL_BEFORE_END_H
#define DD_AGENT_SIGNAL_BEFORE_END_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct agent_loop;
struct round;
struct signal_before_end;
struct signals;
struct uplink;

struct signal_before_end_cfg {
    int sig;     /* signal to send; 0: none */
    uint64_t ns; /* time before the end of the allocation */
};

struct signal_before_end_parts {
    struct agent_loop *loop;
    struct uplink *uplink;
    const struct round *round; /* commands are not killed with the workers of this round */
    struct signals *signals;
};

int signal_before_end_new(struct signal_before_end **ret,
                          const struct signal_before_end_parts *parts,
                          const struct signal_before_end_cfg *cfg);
/* Call on the leader after it has joined. */
int signal_before_end_start(struct signal_before_end *t, struct dd_err *err);
/* Call when workers have been started: signals them if the signal was sent before. */
void signal_before_end_round(struct signal_before_end *t);
bool signal_before_end_is_sent(const struct signal_before_end *t);
void signal_before_end_stop(struct signal_before_end *t); /* call when another node leads */
void signal_before_end_free(struct signal_before_end *t); /* NULL is fine */

#endif
