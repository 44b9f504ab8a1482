/* The nodes find each other through etcd (--rdzv-endpoint=etcd://...), which also decides which one
 * is the first. */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

bool alloc_is_etcd(const struct alloc_input *in)
{
    const char *text = in->rdzv_endpoint;
    return text != NULL && (strncmp(text, "etcd://", 7) == 0 || strncmp(text, "etcds://", 8) == 0);
}

static int detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    (void)warnings;
    (void)err;
    return alloc_is_etcd(in);
}

static int check(const struct alloc_input *in, struct dd_err *err)
{
    const char *other = in->hosts != NULL         ? "--hosts"
                        : in->hostfile != NULL    ? "--hostfile"
                        : in->master_addr != NULL ? "--master-addr"
                                                  : NULL;
    if (in->max_nodes == 0)
        return dd_err_set(err, -EINVAL,
                          "a rendezvous through etcd needs --nnodes=N or --nnodes=MIN:MAX");
    if (in->rdzv_id == NULL)
        return dd_err_set(
            err, -EINVAL,
            "a rendezvous through etcd needs --rdzv-id=ID, the same on all nodes of the job and "
            "unique to it");
    if (other != NULL)
        return dd_err_set(
            err, -EINVAL,
            "%s and a rendezvous through etcd are mutually exclusive: with etcd, the nodes "
            "elect their leader",
            other);
    return 0;
}

static int fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    int rc = check(in, err);
    if (rc < 0)
        return rc;
    a->nnodes = in->max_nodes;
    a->index = in->max_nodes == 1 ? 0 : -1; /* a single node needs no election */
    if (in->node_rank >= 0)
        rc = dd_strv_push(
            &a->warnings,
            "--node-rank has no effect with etcd: nodes are ranked in the order in which they "
            "join");
    if (rc == 0)
        rc = in->max_nodes == 1 ? alloc_set(&a->job_id, "etcd.%016" PRIx64, in->nonce)
                                : alloc_set(&a->job_id, "etcd");
    if (rc == 0)
        rc = hostlist_new(&a->nodes);
    if (rc == 0)
        rc = hostlist_push(a->nodes, hostlist_name_ok(in->hostname) ? in->hostname : "localhost");
    return rc < 0 ? alloc_no_memory(err) : 0;
}

const struct alloc_ops alloc_etcd = {
    .name = "etcd",
    .doc = "--rdzv-endpoint=etcd://..., with --nnodes and --rdzv-id",
    .detect = detect,
    .fill = fill,
};
