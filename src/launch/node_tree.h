/* The nodes of a start and the tree in which they start each other: who starts which node, which
 * nodes are connected, failed or have exited, and what follows. No I/O and no clock: what happens
 * comes in, what is to be done goes out through the port. */
#ifndef DD_LAUNCH_NODE_TREE_H
#define DD_LAUNCH_NODE_TREE_H

#include "base/log.h"
#include "hostlist/hostlist.h"
#include "launch/launch_msg.h"

#include <stdbool.h>

/* What the tree has its owner do. */
struct node_tree_port {
    int (*start)(void *arg, int index);          /* runs the node's starter here; < 0: cannot */
    bool (*is_running)(void *arg, int index);    /* that starter */
    void (*kill)(void *arg, int index, int sig); /* that starter, if it runs */
    /* To a node; one that is not connected does not get it. */
    void (*send)(void *arg, int to, enum launch_msg_type type, int node, uint32_t value);
    /* To the parent of this process; a relay's alone. */
    void (*report)(void *arg, enum launch_msg_type type, int node, int value);
    void (*exited)(void *arg, int index, int code); /* the agent of a node */
    void (*failed)(void *arg);                      /* a node that is needed cannot be started */
    void (*none_left)(void *arg); /* all that were connected have exited, unless others come late */
    void (*connected)(void *arg); /* a node, while the job goes on */
    void (*changed)(void *arg);   /* any node's state */
    void *arg;
};

/* All borrowed. */
struct node_tree_cfg {
    const struct hostlist *nodes;
    int fanout;          /* so many nodes are started from here, and start the others; 0: all */
    int min_nodes;       /* fewer cannot begin */
    bool relay;          /* started itself: its parent decides about what fails */
    const char *starter; /* its name */
    const struct dd_log *log;
    struct node_tree_port port;
};

struct node_tree;

int node_tree_new(struct node_tree **ret, const struct node_tree_cfg *cfg); /* -ENOMEM */
void node_tree_free(struct node_tree *t);

const char *node_tree_name(const struct node_tree *t, int index);
/* The node that starts it; itself: it is started from here; -1: by others. */
int node_tree_parent(const struct node_tree *t, int index);
bool node_tree_is_connected(const struct node_tree *t, int index);
bool node_tree_all_ended(const struct node_tree *t); /* no node is connected or being started */

/* Starts these nodes from here, or through some of them. */
int node_tree_start(struct node_tree *t, const int *nodes, int n, struct dd_err *err);
/* The job is ending: nothing more is started. */
void node_tree_end(struct node_tree *t);
/* Cancels the start of a node that is not connected yet; of all of them. */
void node_tree_cancel(struct node_tree *t, int index);
void node_tree_cancel_starting(struct node_tree *t);

/* ---- what happens ---- */

/* A node asks for its task: *ret_nodes, lent, are the ones that it is to start. False: it is not
 * expected here, or no longer where it had been given to others. */
bool node_tree_take_task(struct node_tree *t, int index, const int **ret_nodes, int *ret_n);
/* It has its payload. False: as above. */
bool node_tree_connect(struct node_tree *t, int index);
/* This node's own agent runs. */
void node_tree_agent_started(struct node_tree *t, int index);
void node_tree_agent_exited(struct node_tree *t, int index, int code);
/* The starter of a node has exited; linked: the node itself is still there. */
void node_tree_starter_exited(struct node_tree *t, int index, int code, bool linked);
/* Neither its starter nor the node itself will report anything more. code: of the starter. */
void node_tree_gone(struct node_tree *t, int index, int code);
/* From a node that this process has started: of it, or of one that it starts. */
void node_tree_receive(struct node_tree *t, int from, const struct launch_msg *m);
/* Every second. One in which this process was stopped does not come, however long it was: no node
 * is late by that. False: nothing is to be looked for any more. */
bool node_tree_tick(struct node_tree *t);

#endif
