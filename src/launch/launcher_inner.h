/* What the files of launch/launcher share. */
#ifndef DD_LAUNCH_LAUNCHER_INNER_H
#define DD_LAUNCH_LAUNCHER_INNER_H

#include "launch/bootstrap_server.h"
#include "launch/output_forward.h"
#include "launch/launcher.h"

#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

enum child_state { CHILD_NONE, CHILD_STARTING, CHILD_CONNECTED, CHILD_FAILED, CHILD_EXITED };

/* A node. */
struct child {
    struct launcher *launcher;
    int index,
        parent; /* index of the node that starts it; its own: started from here; -1: by others */
    int former_parent; /* the parent before, which we have told to cancel it; -1 */
    bool has_task;     /* knows what it is to start, perhaps before we know that it has come */
    enum child_state state;
    pid_t pid;    /* of its starter, or of our own agent; 0: gone, or never there */
    int code;     /* of that one, once it is gone */
    int stdin_fd; /* as long as it is open, the node knows that we live; -1: none */
    int *subtree; /* what it is to start */
    int nsubtree;
    struct output_source streams[LAUNCH_STREAMS]; /* of its starter; ours: of our agent */
    struct output_source relayed[LAUNCH_STREAMS]; /* over the link */
};

struct launcher {
    const struct launcher_cfg *cfg;
    struct event_base *base;
    struct bootstrap_server *server; /* NULL: nobody is to come */
    struct dd_buf payload;
    struct child *children; /* [nnodes] */
    int nnodes, here, left; /* left: processes */
    int missing;            /* nodes that have not been started */
    int code;               /* < 0: not known yet */
    int ends;               /* how often those that are left were told so */
    bool over, asked;       /* asked: somebody has asked for the end */
    bool stopped;           /* all have been told */
    int sig;                /* that asked for the end where there is no agent here */
    uint64_t sig_ns;        /* when the first such signal came, agent or not; 0: none */
    uint64_t written;       /* of our output, when that was asked last */
    int turn;               /* who is first when there is room */
    int ticks; /* seconds in which some node was being started and this process could see to it */
    struct output_sink out[LAUNCH_STREAMS];
    int out_fds[LAUNCH_STREAMS]; /* where ours go, if our fds 1 and 2 lead to us; -1 */
    struct rlimit files;         /* as we found it */
    pid_t started_by;            /* whose core files show what the user wants of them */
    sigset_t old_mask;
    int signal_fd;
    struct event *signals, *tick, *end, *room, *fail, *silence, *input;
};

static inline const char *launcher_name_of(const struct launcher *l, int index)
{
    return hostlist_nth(l->cfg->payload->alloc->nodes, (size_t)index);
}

/* ---- launcher.c ---- */

/* Tells all to end; not at_once: who has not come need not come. at_once: nothing has begun. */
void launcher_stop(struct launcher *l, int sig, bool at_once);
/* A node that is needed cannot be started. */
void launcher_fail(struct launcher *l);
void launcher_job_over(struct launcher *l);
void launcher_end_in_grace(struct launcher *l); /* what is left by then is ended */
void launcher_look(struct launcher *l);         /* soon: whether there is room, or all are done */

/* With all that it has started here: it may be a script. Our agent, too. */
void launcher_kill(const struct launcher *l, const struct child *c, int sig);
void launcher_on_room(void *arg); /* the same, for output sinks */
void launcher_tell_here(const struct launcher *l, int sig, bool at_once); /* this node's agent */

/* ---- relay.c ---- */

int launcher_begin_started(struct launcher *l, struct dd_err *err);

/* ---- node_tree.c: what is known of nodes ---- */

bool launcher_is_to_come(
    const struct launcher *l,
    const struct child *c); /* here, and not any more where it had been given to others */
void launcher_node_came(struct launcher *l, struct child *c);
void launcher_node_ended(struct launcher *l, struct child *c, int code);
void launcher_node_missing(struct launcher *l, struct child *c,
                           int code); /* of a starter of ours */
/* Neither its starter nor the node itself will say anything more. */
void launcher_node_gone(struct launcher *l, struct child *c);
/* From a node that we have started: of it, or of one that it starts. */
void launcher_node_says(struct launcher *l, struct child *c, const struct launch_msg *w);
/* What others were to start and have not: from here, or by yet others. */
void launcher_take_subtrees(struct launcher *l);
/* Every second. One in which this process was stopped does not come, however long it was: nobody is
 * late by that. False: nothing is to be looked for any more. */
bool launcher_tick(struct launcher *l);
void launcher_trim_subtree(const struct launcher *l,
                           struct child *c); /* what others start meanwhile it need not */
void launcher_drop(struct launcher *l, struct child *c); /* somebody else starts it */

/* ---- launch_procs.c ---- */

int launcher_start_here(struct launcher *l, struct child *c);
/* Starts these nodes from here, or through some of them. */
int launcher_start_nodes(struct launcher *l, const int *nodes, int n, struct dd_err *err);

#endif
