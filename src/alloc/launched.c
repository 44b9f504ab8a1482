/* An outer launcher of MPI programs has started one ddrun on each node (mpiexec -ppn 1 ddrun …),
 * and there is no scheduler: the agents have got their ranks from the launcher and exchanged their
 * host names. */
#include "alloc/alloc_inner.h"

static int detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    (void)warnings;
    (void)err;
    return in->peers != NULL;
}

static int fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    const struct alloc_peers *p = in->peers;
    int rc = hostlist_new(&a->nodes);
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = hostlist_push(a->nodes, p->names[i]);
    a->nnodes = p->n;
    a->index = p->index;
    if (rc == 0)
        rc = alloc_set(&a->job_id, "mpi.%s", p->job);
    if (rc == 0)
        rc = alloc_set(&a->run_id, "%s", p->job);
    if (rc == 0)
        rc = alloc_set(&a->psk, "%s", p->secret);
    return rc < 0 ? alloc_no_memory(err) : 0;
}

const struct alloc_ops alloc_launched = {
    .name = "mpiexec",
    .doc = "an outer launcher with PMI-1, if no scheduler is found",
    .detect = detect,
    .fill = fill,
};
