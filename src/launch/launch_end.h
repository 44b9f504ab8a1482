/* The end of a launcher: when it orders the nodes to stop, when it signals the processes that
 * remain, when its loop ends, and with which exit code. */
#ifndef DD_LAUNCH_LAUNCH_END_H
#define DD_LAUNCH_LAUNCH_END_H

#include "launch/bootstrap_server.h"
#include "launch/launch_procs.h"
#include "launch/launcher.h"
#include "launch/node_tree.h"
#include "launch/output_forward.h"

struct event;

/* What the end of a launcher acts on; launcher.c creates and frees these parts. */
struct launch_parts {
    int nnodes;
    struct event_base *base;
    struct bootstrap_server *server; /* NULL: this process serves no nodes */
    struct node_tree *tree;          /* tree, procs, output: NULL before their creation */
    struct launch_procs *procs;
    struct output_forward *output;
};

/* The caller sets cfg, parts (both borrowed) and code; the rest is zero. */
struct launch_end {
    const struct launcher_cfg *cfg;
    const struct launch_parts *parts;
    int code; /* exit code; < 0: unknown */
    /* Only for launch_end.c: */
    struct event *check, *timer, *fail_timer, *lost_timer;
    int lost;     /* node for whose loss the job is to end */
    int tries;    /* number of signals sent to the remaining processes */
    bool over;    /* the job has ended, or cannot begin */
    bool asked;   /* a signal or the parent has requested the end */
    bool stopped; /* all nodes have received the order to stop */
    int sig;      /* signal that requested the end if there is no agent on this node; 0: none */
};

int launch_end_init(struct launch_end *e); /* creates the events; -ENOMEM */
void launch_end_done(struct launch_end *e);

/* Schedule a check, which passes on output, and ends the loop if all has ended. It runs from the
 * event loop, because callers may be in the middle of a change. */
void launch_end_check_soon(const struct launch_end *e);

/* Send all nodes the order to stop. how: 0, DD_SIGNAL_LEAVE, or, if no workers run yet,
 * DD_SIGNAL_AT_ONCE. Without DD_SIGNAL_AT_ONCE, cancel the nodes that are not connected. */
void launch_end_stop(struct launch_end *e, int sig, int how);
/* A signal or the parent has requested the end. */
void launch_end_request(struct launch_end *e);
/* On a node without an agent, to be called after launch_end_request(): begin the grace period.
 * again: the signal repeats the request; signal the starters at once. */
void launch_end_request_without_agent(struct launch_end *e, int sig, bool again);
/* Signal the remaining processes after the grace period. */
void launch_end_in_grace(struct launch_end *e);
/* The parent has requested the end, or is lost. */
void launch_end_obey(struct launch_end *e, int sig, int how);
void launch_end_on_parent_lost(struct launch_end *e);

/* What the tree of nodes reports: */
void launch_end_on_exited(struct launch_end *e, int index, int code);
void launch_end_on_failed(struct launch_end *e); /* a required node cannot be started */
void launch_end_on_none_left(struct launch_end *e);
void launch_end_on_connected(struct launch_end *e);

/* End the processes of a start that failed half-way; `code` becomes the exit code. */
void launch_end_give_up(struct launch_end *e, int code);
/* Return the exit code of the launcher. */
int launch_end_code(const struct launch_end *e);

#endif
