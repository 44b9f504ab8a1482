/* The child processes of a launcher: this node's agent, and a starter for each node that this node
 * starts. */
#ifndef DD_LAUNCH_LAUNCH_PROCS_H
#define DD_LAUNCH_LAUNCH_PROCS_H

#include "launch/launch_signals.h"
#include "launch/output_forward.h"
#include "launch/starter.h"

struct launch_procs;

/* All pointers are borrowed. */
struct launch_procs_cfg {
    int nnodes, here;              /* here: index of this node; -1: not a node of the job */
    bool relay;                    /* another node has started this one */
    const struct starter *starter; /* NULL: not needed */
    const char *key_for_stdin;     /* a line for starters that forward stdin; NULL: none */
    const struct launch_signals *signals;
    struct output_forward *output;
    int (*agent)(void *arg, int index); /* runs this node's agent and returns its exit code */
    /* Called before a process is reaped, while the process group of a starter can still be
     * signalled. */
    void (*on_exiting)(void *arg, int index);
    void (*on_exit)(void *arg, int index, int code);
    void *arg;
};

/* Also raises the limit of open files of this process: each starter needs three pipes. */
int launch_procs_new(struct launch_procs **ret, const struct launch_procs_cfg *cfg); /* -ENOMEM */
void launch_procs_free(struct launch_procs *p);

/* To be called before any starter runs, so that the agent inherits few descriptors. */
int launch_procs_start_agent(struct launch_procs *p);
int launch_procs_start_starter(struct launch_procs *p, int index, char *const *argv);

bool launch_procs_is_running(const struct launch_procs *p, int index);
bool launch_procs_has_agent(const struct launch_procs *p);
int launch_procs_left(const struct launch_procs *p); /* number of running processes */
int launch_procs_code(const struct launch_procs *p,
                      int index); /* exit code of the last process of this node */

/* Signal the agent, or the process group of the starter, which may be a script. */
void launch_procs_kill(const struct launch_procs *p, int index, int sig);
/* Signal the agent alone. how: 0, DD_SIGNAL_AT_ONCE or DD_SIGNAL_LEAVE. */
void launch_procs_tell_agent(const struct launch_procs *p, int sig, int how);
/* Close the stdin of a started node, which takes EOF for the exit of its launcher. */
void launch_procs_close_stdin(struct launch_procs *p, int index);
void launch_procs_reap(struct launch_procs *p);

#endif
