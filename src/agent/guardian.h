/* The guardian: the process that slurmstepd or the shell started. It forks the agent, forwards
 * signals and ends all processes of the job that outlive the agent. */
#ifndef DD_AGENT_GUARDIAN_H
#define DD_AGENT_GUARDIAN_H

#include "base/log.h"
#include "worker/terminal.h"

#include <stdbool.h>
#include <sys/types.h>

/* The signal by which the guardian forwards signals to the agent. Its value holds the forwarded
 * signal and flags of the sender: GUARDIAN_BY_SCHEDULER for the scheduler's process on this node,
 * GUARDIAN_BY_STARTER for the process that started this node and forwards a signal of its own,
 * GUARDIAN_STARTER_LOST if the kernel has sent the signal because the starting process died, and
 * DD_SIGNAL_AT_ONCE or DD_SIGNAL_LEAVE if the starting process has set this flag. */
#define GUARDIAN_SIGNAL SIGRTMIN
enum {
    GUARDIAN_BY_SCHEDULER = 0x100,
    GUARDIAN_BY_STARTER = 0x400,
    GUARDIAN_STARTER_LOST = 0x800
}; /* bits above all signal numbers, combined with DD_SIGNAL_AT_ONCE and DD_SIGNAL_LEAVE */

/* True if sender is the scheduler's process on this node. slurmstepd signals a step on all of its
 * nodes. */
bool guardian_is_scheduler(pid_t sender);

struct guardian_cfg {
    unsigned grace_ms;
    bool launched; /* a launcher has started this node; the job may go on without it */
    const struct terminal *terminal; /* state of stdin's terminal, restored at the end */
    const struct dd_log *log;
};
/* Run fn(arg) in a child. Processes that outlive it get SIGTERM, and SIGKILL after grace_ms. Return
 * the child's exit code (128 + signal if killed) once every descendant has exited, or 10 s after
 * SIGKILL at the latest. */
int guardian_run(int (*fn)(void *arg), void *arg, const struct guardian_cfg *cfg);

#endif
