/* ddrun that starts itself on the other nodes, and ddrun that was started so. */
#ifndef DD_CMD_DDRUN_LAUNCH_H
#define DD_CMD_DDRUN_LAUNCH_H

#include "cmd/ddrun_options.h"
#include "launch/package.h"

/* What a start needs to know. All borrowed. */
struct launch_input {
    const struct ddrun_options *o;
    char **argv; /* of this process; argv[0] is replaced by the program's path */
    const struct alloc_input *in;
    const struct dd_log *log;
    int (*node)(void *arg, const struct alloc *a, int index); /* runs this node's agent, in a child */
    void *arg;
};

/* Where this process is the only one of a job with several nodes, starts the others and runs the job;
 * its exit code. -1: there is nothing to start. */
int launch_job(const struct launch_input *l);

/* A node that was started so: fetches its package, makes folder, limits and environment those of the
 * starting shell, and runs node(arg, package, index), which has the arguments, in a child. Its exit code. */
struct joiner {
    int (*node)(void *arg, struct package *p, int index);
    void *arg;
};
int launch_join(const char *ticket, const struct joiner *joiner);

#endif
