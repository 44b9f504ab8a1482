/* Signals to the agent. Those that end the job, and those for the workers (USR1, USR2), reach all
 * nodes through the daemon. */
#ifndef DD_AGENT_SIGNALS_H
#define DD_AGENT_SIGNALS_H

#include "agent/agent_loop.h"
#include "agent/leader.h"
#include "agent/round.h"
#include "agent/uplink.h"

struct signals;

struct signals_parts {
    struct agent_loop *loop;
    struct uplink *uplink;
    const struct round *round;
    const struct leader *leader;
};

/* Block the signals; call before the first process is started. */
int signals_new(struct signals **ret, struct dd_err *err);
int signals_watch(struct signals *s, const struct signals_parts *parts, struct dd_err *err);
void signals_request_stop(struct signals *s, int sig); /* send STOP_REQUEST to the daemon */
/* End the job for a reason of this agent, with this exit code (0: 128 + sig). */
void signals_stop(struct signals *s, int sig, int code, const char *why);
void signals_drain(struct signals *s); /* handle signals that have arrived; raises events */
/* True while the scheduler is ending the job, process by process. Exits of workers at that time are
 * no failures, and are reported only after the reason was sent to the daemon. */
bool signals_settling(const struct signals *s);
/* Signal the workers of this node that catch the signal. Returns the number of processes, or
 * -errno if it is unknown. */
int signals_announce(const struct signals *s, int sig);
bool signals_before_end(const struct signals *s); /* True if --signal-before-end ends the job */
void signals_free(struct signals *s);             /* NULL is fine */

#endif
