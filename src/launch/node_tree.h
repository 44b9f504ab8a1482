/* The tree in which the nodes of a job start each other: which node starts which, and which nodes
 * are connected, failed or have exited. No I/O and no clock: events come in by calls, actions go
 * out through the port. */
#ifndef DD_LAUNCH_NODE_TREE_H
#define DD_LAUNCH_NODE_TREE_H

#include "base/log.h"
#include "hostlist/hostlist.h"
#include "launch/launch_msg.h"

#include <stdbool.h>

/* Actions that the owner of the tree carries out. */
struct node_tree_port {
    int (*start)(void *arg, int index);          /* run the starter of the node; < 0: it cannot be
                                                    run */
    bool (*is_running)(void *arg, int index);    /* true if the starter of the node runs */
    void (*kill)(void *arg, int index, int sig); /* signal the starter of the node, if it runs */
    /* Send to a node; ignored if it is not connected. */
    void (*send)(void *arg, int to, enum launch_msg_type type, int node, uint32_t value);
    /* Report to the parent of this process; relays only. */
    void (*report)(void *arg, enum launch_msg_type type, int node, int value);
    void (*exited)(void *arg, int index, int code); /* the agent of a node has exited */
    void (*failed)(void *arg);                      /* a required node cannot be started */
    void (*none_left)(
        void *arg); /* all connected nodes have exited; nodes may still connect late */
    void (*connected)(void *arg); /* a node has connected, and the job continues */
    void (*changed)(void *arg);   /* the state of a node has changed */
    void *arg;
};

/* All borrowed. */
struct node_tree_cfg {
    const struct hostlist *nodes;
    int fanout;          /* number of nodes that a node starts itself; 0: all */
    int min_nodes;       /* number of nodes without which the job cannot begin */
    unsigned limit_s;    /* time for which the started nodes wait for others; 0: unknown */
    bool relay;          /* a relay: its parent decides about failed nodes */
    const char *starter; /* name of the starter */
    const struct dd_log *log;
    struct node_tree_port port;
};

struct node_tree;

int node_tree_new(struct node_tree **ret, const struct node_tree_cfg *cfg); /* -ENOMEM */
void node_tree_free(struct node_tree *t);

const char *node_tree_name(const struct node_tree *t, int index);
/* Return the node that starts this one: its own index if this process starts it, -1 if a node
 * elsewhere in the tree does. */
int node_tree_parent(const struct node_tree *t, int index);
bool node_tree_is_connected(const struct node_tree *t, int index);
bool node_tree_all_ended(const struct node_tree *t); /* no node is connected or being started */

/* Start these nodes, directly or through some of them. */
int node_tree_start(struct node_tree *t, const int *nodes, int n, struct dd_err *err);
/* The job ends: start no further nodes. */
void node_tree_end(struct node_tree *t);
/* Cancel the start of a node that is not connected yet, or of all such nodes. */
void node_tree_cancel(struct node_tree *t, int index);
void node_tree_cancel_starting(struct node_tree *t);

/* ---- events ---- */

/* A node asks for its task: give the nodes that it is to start in *ret_nodes, lent. Return false if
 * the node is not expected, or has been given to another parent. */
bool node_tree_take_task(struct node_tree *t, int index, const int **ret_nodes, int *ret_n);
/* A node has its payload. Return false as node_tree_take_task() does. */
bool node_tree_connect(struct node_tree *t, int index);
/* This node's own agent has started. */
void node_tree_agent_started(struct node_tree *t, int index);
void node_tree_agent_exited(struct node_tree *t, int index, int code);
/* The starter of a node has exited; linked: the node itself is still connected. */
void node_tree_starter_exited(struct node_tree *t, int index, int code, bool linked);
/* Neither the starter nor the node will report again. code: exit code of the starter. */
void node_tree_gone(struct node_tree *t, int index, int code);
/* A message from a node that this process has started, about itself or a node below it. */
void node_tree_receive(struct node_tree *t, int from, const struct launch_msg *m);
/* To be called every second. Seconds in which this process was stopped do not count against late
 * nodes. Return false when there is nothing left to watch. */
bool node_tree_tick(struct node_tree *t);

#endif
