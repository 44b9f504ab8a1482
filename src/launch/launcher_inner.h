/* What the files of launch/launcher share. */
#ifndef DD_LAUNCH_ROOT_INNER_H
#define DD_LAUNCH_ROOT_INNER_H

#include "launch/bootstrap_server.h"
#include "launch/output_forward.h"
#include "launch/launcher.h"

#include <event2/event.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

enum child_state { CHILD_NONE, CHILD_STARTING, CHILD_CAME, CHILD_MISSING, CHILD_ENDED };

/* A node. */
struct child {
    struct root *root;
    int index,
        lead; /* lead: the node that starts it; itself: it is started from here; -1: by others */
    int was;  /* the lead before, which we have told to drop it; -1 */
    bool has_task; /* knows what it is to start, perhaps before we know that it has come */
    enum child_state state;
    pid_t pid;    /* of its starter, or of our own agent; 0: gone, or never there */
    int code;     /* of that one, once it is gone */
    int stdin_fd; /* as long as it is open, the node knows that we live; -1: none */
    int *share;   /* what it is to start */
    int nshare;
    struct stream streams[LAUNCH_STREAMS]; /* of its starter; ours: of our agent */
    struct stream said[LAUNCH_STREAMS];    /* over the link */
};

struct root {
    const struct root_cfg *cfg;
    struct event_base *base;
    struct launch_door *door; /* NULL: nobody is to come */
    struct dd_buf package;
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
    struct outlet out[LAUNCH_STREAMS];
    int out_fds[LAUNCH_STREAMS]; /* where ours go, if our fds 1 and 2 lead to us; -1 */
    struct rlimit files;         /* as we found it */
    pid_t started_by;            /* whose core files show what the user wants of them */
    sigset_t old_mask;
    int signal_fd;
    struct event *signals, *tick, *end, *room, *fail, *silence, *input;
};

static inline const char *root_name_of(const struct root *r, int index)
{
    return hostlist_nth(r->cfg->package->alloc->nodes, (size_t)index);
}

/* ---- root.c ---- */

/* Tells all to end; not at_once: who has not come need not come. at_once: nothing has begun. */
void root_stop(struct root *r, int sig, bool at_once);
/* A node that is needed cannot be started. */
void root_fail(struct root *r);
void root_job_over(struct root *r);
void root_end_in_grace(struct root *r); /* what is left by then is ended */
void root_look(struct root *r);         /* soon: whether there is room, or all are done */

/* With all that it has started here: it may be a script. Our agent, too. */
void root_kill(const struct root *r, const struct child *c, int sig);
void root_on_room(void *arg);                                     /* the same, for outlets */
void root_tell_here(const struct root *r, int sig, bool at_once); /* this node's agent */

/* ---- relay.c ---- */

int root_begin_started(struct root *r, struct dd_err *err);

/* ---- root_nodes.c: what is known of nodes ---- */

bool root_is_to_come(
    const struct root *r,
    const struct child *c); /* here, and not any more where it had been given to others */
void root_node_came(struct root *r, struct child *c);
void root_node_ended(struct root *r, struct child *c, int code);
void root_node_missing(struct root *r, struct child *c, int code); /* of a starter of ours */
/* Neither its starter nor the node itself will say anything more. */
void root_node_gone(struct root *r, struct child *c);
/* From a node that we have started: of it, or of one that it starts. */
void root_node_says(struct root *r, struct child *c, const struct launch_word *w);
/* What others were to start and have not: from here, or by yet others. */
void root_take_shares(struct root *r);
/* Every second. One in which this process was stopped does not come, however long it was: nobody is
 * late by that. False: nothing is to be looked for any more. */
bool root_tick(struct root *r);
void root_trim_share(const struct root *r,
                     struct child *c);           /* what others start meanwhile it need not */
void root_drop(struct root *r, struct child *c); /* somebody else starts it */

/* ---- root_start.c ---- */

int root_start_here(struct root *r, struct child *c);
/* Starts these nodes from here, or through some of them. */
int root_start_nodes(struct root *r, const int *nodes, int n, struct dd_err *err);

#endif
