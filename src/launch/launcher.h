/* The process that starts the agents of a job: that of this node as a child, the others with a
 * starter. It stays connected to them for output, signals and exit codes. The first launcher starts
 * all nodes, or lets the started nodes start others (launch/launch_msg.h). */
#ifndef DD_LAUNCH_LAUNCHER_H
#define DD_LAUNCH_LAUNCHER_H

#include "launch/bootstrap_payload.h"
#include "launch/starter.h"
#include "launch/parent_link.h"
#include "net/key.h"

/* All borrowed. */
struct launcher_cfg {
    const struct starter *starter; /* NULL: not needed */
    const char *program;           /* path of the starter */
    const char *words; /* --launch-command, which replaces the starter; NULL: not given */
    const char *ddrun; /* path of ddrun, the same on all nodes */
    const struct bootstrap_payload *payload; /* payload of the started nodes; its allocation lists
                                                the nodes */
    int here;                                /* index of this node; -1: not a node of the job */
    int fanout;                              /* number of nodes that a node starts itself; 0: all */
    const char *id;                          /* random id of this start */
    const struct net_key *key;               /* key that the started nodes must prove */
    const struct net_key_input *key_in;
    const char *key_for_stdin; /* a line for starters that forward stdin; NULL: the nodes find the
                                  key themselves */
    const struct launch_ticket
        *ticket;   /* ticket of the started nodes: key, path, names and addresses of this machine */
    bool go_on;    /* the job may continue without a node that was connected */
    int min_nodes; /* the job fails when fewer nodes than this can be started */
    unsigned limit_s;  /* time for which the started nodes wait for others; 0: unknown */
    unsigned grace_ms; /* time for starters to exit after the end of the job */
    int (*node)(void *arg, int index); /* runs this node's agent, in a process of its own */
    void *arg;
    const struct dd_log *log;
    /* Only for a relay: */
    struct parent_link *parent; /* NULL: not a relay */
    const struct launch_task *task;
    int stdin_fd; /* EOF means that the parent has exited; -1: none */
};

/* Run until the job, or this node's part of it, has ended. Return the exit code. Errors have been
 * logged. */
int launcher_run(const struct launcher_cfg *cfg);

#endif
