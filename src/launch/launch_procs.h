/* The processes that a launcher starts: this node's agent, and a starter for each node that is
 * started from here. */
#ifndef DD_LAUNCH_LAUNCH_PROCS_H
#define DD_LAUNCH_LAUNCH_PROCS_H

#include "launch/launch_signals.h"
#include "launch/output_forward.h"
#include "launch/starter.h"

struct launch_procs;

/* All borrowed. */
struct launch_procs_cfg {
    int nnodes, here;              /* here: this node; -1: none of them */
    bool relay;                    /* started itself */
    const struct starter *starter; /* NULL: none is needed */
    const char *key_for_stdin;     /* a line for starters that take stdin; NULL: none */
    const struct launch_signals *signals;
    struct output_forward *output;
    int (*agent)(void *arg, int index); /* runs this node's agent; the exit code */
    /* Before a process is reaped, so that the group of a starter can still be signalled. */
    void (*on_exiting)(void *arg, int index);
    void (*on_exit)(void *arg, int index, int code);
    void *arg;
};

/* Raises this process's limit of open files: each starter has three pipes. */
int launch_procs_new(struct launch_procs **ret, const struct launch_procs_cfg *cfg); /* -ENOMEM */
void launch_procs_free(struct launch_procs *p);

/* Before any of the starters, so that the agent inherits little that it must close. */
int launch_procs_start_agent(struct launch_procs *p);
int launch_procs_start_starter(struct launch_procs *p, int index, char *const *argv);

bool launch_procs_is_running(const struct launch_procs *p, int index);
bool launch_procs_has_agent(const struct launch_procs *p);
int launch_procs_left(const struct launch_procs *p);            /* how many run */
int launch_procs_code(const struct launch_procs *p, int index); /* of the last one that exited */

/* To the agent, or to the starter with all that it has started here: it may be a script. */
void launch_procs_kill(const struct launch_procs *p, int index, int sig);
/* The same, to the agent alone; at_once: nothing has begun (DD_SIGNAL_AT_ONCE). */
void launch_procs_tell_agent(const struct launch_procs *p, int sig, bool at_once);
/* The node's ddrun takes it for the end of its launcher. */
void launch_procs_close_stdin(struct launch_procs *p, int index);
void launch_procs_reap(struct launch_procs *p);

#endif
