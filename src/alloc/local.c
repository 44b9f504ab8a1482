/* This machine alone, if no other source applies. */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <inttypes.h>

static int detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    char nnodes[ALLOC_NNODES];
    (void)warnings;
    if (in->min_nodes > 1)
        return dd_err_tip(
            err,
            dd_err_tip(
                err,
                dd_err_set(err, -EINVAL, "--nnodes=%s, but no other node is known",
                           alloc_show_nnodes(nnodes, in)),
                "run inside a scheduler's job, add --launcher=ssh --hosts=node1,node2, or start ddrun on each node "
                "with --rdzv-endpoint=HOST:PORT"),
            "use --simulate-nodes=%d to simulate the nodes on this machine", in->min_nodes);
    return 1;
}

static int fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    const char *name = hostlist_name_ok(in->hostname) ? in->hostname : "localhost";
    a->nnodes = 1;
    if (hostlist_new(&a->nodes) < 0 || hostlist_push(a->nodes, name) < 0 ||
        alloc_set(&a->job_id, "local.%s.%016" PRIx64, name, in->nonce) < 0)
        return alloc_no_memory(err);
    /* as in torchrun: with --master-port, the run has the name "none"; otherwise a random one */
    if (in->master_port == 0 && alloc_set(&a->run_id, "%016" PRIx64, in->nonce) < 0)
        return alloc_no_memory(err);
    return 0;
}

const struct alloc_ops alloc_local = {
    .name = "local",
    .doc = "this machine alone",
    .detect = detect,
    .fill = fill,
};
