/* The process that starts the agents of a job: this node's in a child, the others' through a
 * starter, and stays with them: their output, signals, exit codes. The one that a person has
 * started does so for all nodes; where that would be slow, those that it starts do so for others
 * (launch/launch_msg.h). */
#ifndef DD_LAUNCH_LAUNCHER_H
#define DD_LAUNCH_LAUNCHER_H

#include "launch/bootstrap_payload.h"
#include "launch/starter.h"
#include "launch/parent_link.h"
#include "net/key.h"

/* All borrowed. */
struct launcher_cfg {
    const struct starter *starter;           /* NULL: none is needed */
    const char *program;                     /* the starter's path */
    const char *words;                       /* of the user, in its place; NULL */
    const char *ddrun;                       /* path of this program, the same on all nodes */
    const struct bootstrap_payload *payload; /* its alloc has the nodes */
    int here;                                /* which of them is this one; -1: none */
    int fanout;                /* so many are started from here, and start the others; 0: all */
    const char *id;            /* of this start: random */
    const struct net_key *key; /* that the started nodes prove to have */
    const struct net_key_input *key_in;
    const char *key_for_stdin; /* a line for starters that take stdin; NULL: the nodes have it */
    const struct launch_ticket
        *ticket;       /* of the started nodes: key, path, and this machine's names and addresses */
    bool go_on;        /* the others may go on without a node that was there */
    int min_nodes;     /* fewer cannot begin: the job ends when too many have not been started */
    unsigned grace_ms; /* for starters after the job's end */
    int (*node)(void *arg, int index); /* runs this node's agent, in a process of its own */
    void *arg;
    const struct dd_log *log;
    /* Of a node that was started itself: */
    struct parent_link *parent; /* NULL: it was not */
    const struct launch_task *task;
    int stdin_fd; /* there is nobody up there once this has ended; -1: none */
};

/* Until the job is over, or this node's part of it; its exit code. Messages have been printed. */
int launcher_run(const struct launcher_cfg *cfg);

#endif
