/* ddrun that starts itself on the other nodes. */
#ifndef DD_CMD_DDRUN_LAUNCH_H
#define DD_CMD_DDRUN_LAUNCH_H

#include "alloc/alloc.h"
#include "cmd/ddrun_options.h"

/* What a start needs to know. All borrowed. */
struct launch_input {
    const struct ddrun_options *o;
    char **argv; /* of this process; argv[0] is replaced by the program's path */
    const struct alloc_input *in;
    const struct dd_log *log;
    int (*node)(void *arg, const struct alloc *a,
                int index); /* runs this node's agent, in a child */
    void *arg;
    bool dry; /* nothing is started: the start is described on stdout, then node() describes the
                 first node */
};

/* Where this process is the only one of a job with several nodes, starts the others and runs the
 * job; its exit code. -1: there is nothing to start. */
int launch_job(const struct launch_input *l);

#endif
