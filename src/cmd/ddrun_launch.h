/* The launcher: ddrun starts itself on the other nodes of its job. */
#ifndef DD_CMD_DDRUN_LAUNCH_H
#define DD_CMD_DDRUN_LAUNCH_H

#include "alloc/alloc.h"
#include "cmd/ddrun_options.h"
#include "cmd/local_machine.h"

/* What a start needs to know. All borrowed. */
struct launch_input {
    const struct ddrun_options *o;
    char **argv; /* of this process; argv[0] is replaced by the program's path */
    const struct local_machine *machine;
    struct alloc_input in;
    const struct dd_log *log;
};

/* How this node's part is run, in a process of its own; with --dry-run, described. */
struct launch_node {
    int (*run)(void *arg, const struct alloc *a, int index);
    void *arg;
};

struct launch_plan;

/* Gives *ret where this process is the only one of a job with several nodes, and can start the
 * others; else NULL. */
int launch_plan_new(struct launch_plan **ret, const struct launch_input *in, struct dd_err *err);
/* Starts the nodes and runs the job; its exit code. With --dry-run the start is described on stdout
 * instead, then the first node. */
int launch_run(struct launch_plan *p, const struct launch_node *node);
void launch_plan_free(struct launch_plan *p);

DD_AUTO_DEFINE(launch_plan, struct launch_plan *, launch_plan_free);

#endif
