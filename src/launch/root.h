/* The process that was started once and starts all the agents of a job: this node's in a child, the
 * others' through a starter. */
#ifndef DD_LAUNCH_ROOT_H
#define DD_LAUNCH_ROOT_H

#include "launch/package.h"
#include "launch/starter.h"
#include "net/key.h"

/* All borrowed. */
struct root_cfg {
    const struct starter *starter;
    const char *program;       /* the starter's path */
    const char *words;         /* of the user, in its place; NULL */
    const char *ddrun;         /* path of this program, the same on all nodes */
    const struct package *package; /* its alloc has the nodes, and which of them is this one; -1: none */
    const char *id;            /* of this start: random */
    const struct net_key *key; /* that the started nodes prove to have */
    const struct net_key_input *key_in;
    const char *key_for_stdin; /* a line for starters that take stdin; NULL: the nodes have it */
    char *const *addresses;    /* of this machine, as other nodes may reach it */
    bool go_on;                /* the others may go on without a node that was there */
    int min_nodes;             /* fewer cannot begin: the job ends when too many have not been started */
    unsigned grace_ms;         /* for starters after the job's end */
    int (*node)(void *arg, int index); /* runs this node's agent, in a process of its own */
    void *arg;
    const struct dd_log *log;
};

/* Until the job is over; its exit code. Messages have been printed. */
int root_run(const struct root_cfg *cfg);

#endif
