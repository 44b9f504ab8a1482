/* The guardian: what slurmstepd or the shell started. It forks the agent, passes signals on and
 * sees to it that nothing of the job is left, however the agent ended. */
#ifndef DD_AGENT_GUARDIAN_H
#define DD_AGENT_GUARDIAN_H

#include "base/log.h"
#include "worker/terminal.h"

#include <stdbool.h>
#include <sys/types.h>

/* How the guardian hands signals to the agent: as this one, whose value is the signal, and
 * GUARDIAN_BY_SCHEDULER when its sender was the scheduler's own process on this node,
 * GUARDIAN_BY_STARTER when it was the process that has started this node, which was sent it itself,
 * and DD_SIGNAL_AT_ONCE when that one has sent it so. */
#define GUARDIAN_SIGNAL SIGRTMIN
enum { GUARDIAN_BY_SCHEDULER = 0x100, GUARDIAN_BY_STARTER = 0x400 }; /* beside DD_SIGNAL_AT_ONCE */

/* slurmstepd signals the processes of a step on all its nodes by itself. */
bool guardian_is_scheduler(pid_t sender);

/* Runs fn(arg) in a child and returns its exit code (128 + signal when it was killed), once every
 * descendant is gone: those that outlive the agent get SIGTERM, and SIGKILL after grace_ms. */
struct guardian_cfg {
    unsigned grace_ms;
    const struct terminal *terminal; /* stdin's, to be restored at the end */
    const struct dd_log *log;
};
int guardian_run(int (*fn)(void *arg), void *arg, const struct guardian_cfg *cfg);

#endif
