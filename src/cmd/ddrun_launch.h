/* The launcher: ddrun starts itself on the other nodes of its job. */
#ifndef DD_CMD_DDRUN_LAUNCH_H
#define DD_CMD_DDRUN_LAUNCH_H

#include "alloc/alloc.h"
#include "cmd/ddrun_options.h"
#include "cmd/local_machine.h"

/* Inputs of a start. All borrowed. */
struct launch_input {
    const struct ddrun_options *o;
    char **argv; /* arguments of this process; the program's path replaces argv[0] */
    struct local_machine *machine;
    struct alloc_input in;
    const struct dd_log *log;
};

/* Callback that runs this node's part in a process of its own, or describes it with --dry-run. */
struct launch_node {
    int (*run)(void *arg, const struct alloc *a, int index);
    void *arg;
};

struct launch_plan;

/* Make a plan if this process is the only ddrun of a job with several nodes, and can start the
 * others; otherwise set *ret to NULL. The caller owns *ret. */
int launch_plan_new(struct launch_plan **ret, const struct launch_input *in, struct dd_err *err);
/* Start the nodes and run the job; return its exit code. With --dry-run, describe the start and
 * then the first node on stdout instead. */
int launch_run(struct launch_plan *p, const struct launch_node *node);
void launch_plan_free(struct launch_plan *p);

DD_AUTO_DEFINE(launch_plan, struct launch_plan *, launch_plan_free);

#endif
