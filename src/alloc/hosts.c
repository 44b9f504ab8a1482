/* Nodes from options: --hosts=LIST, --hostfile=FILE. */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <inttypes.h>

static int refuse_other_host(const struct alloc_input *in, const struct hostlist *nodes,
                             const char *option, struct dd_err *err)
{
    struct alloc_shown shown;
    const int rc = dd_err_set(err, -EINVAL, "this host (%s) is not in %s (%s)", in->hostname,
                              option, alloc_show(&shown, nodes));
    if (dd_env_get_nonempty(in->env, "SLURM_JOB_ID") != NULL)
        return dd_err_tip(err, rc,
                          "omit the option: ddrun uses the nodes of the Slurm job; to use some of "
                          "them: srun --nodelist=LIST --ntasks=N --ntasks-per-node=1 ddrun ...");
    return dd_err_tip(
        err, rc,
        "add --launcher=ssh to start the job from here, or --node-rank=R if %s is one of them",
        in->hostname);
}

/* Take ownership of *nodes, and find this host in it. */
static int take_list(struct alloc *a, const struct alloc_input *in, struct hostlist **nodes,
                     const char *option, struct dd_err *err)
{
    struct alloc_shown shown;
    int n = (int)hostlist_count(*nodes);
    if (n == 0)
        return dd_err_set(err, -EINVAL, "%s names no host", option);
    int me = in->node_rank >= 0 ? in->node_rank : alloc_find_me(in, *nodes);
    if (me >= n)
        return dd_err_tip(err,
                          dd_err_set(err, -EINVAL,
                                     "--node-rank=%d is out of range for the %d host%s of %s (%s)",
                                     me, n, n == 1 ? "" : "s", option, alloc_show(&shown, *nodes)),
                          "ranks count from 0");
    if (me == -ENOTUNIQ)
        return dd_err_set(
            err, -EINVAL,
            "%s (%s) names this host (%s) more than once"
            "\n  tip: set --node-rank to this node's position in the list, counted from 0",
            option, alloc_show(&shown, *nodes), in->hostname);
    if (me < 0 && in->list_only)
        me = -1;
    else if (me < 0)
        return refuse_other_host(in, *nodes, option, err);
    DD_AUTO(buf) struct dd_buf folded = DD_BUF_INIT(64U << 20);
    int rc = alloc_refuse_surplus(in, n, err);
    if (rc < 0)
        return rc;
    rc = hostlist_fold(*nodes, &folded);
    if (rc < 0 || dd_buf_str(&folded) == NULL)
        return alloc_no_memory(err);
    a->nodes = DD_TAKE(*nodes);
    a->nnodes = n;
    a->index = me;
    rc = alloc_set(&a->job_id, "hosts.%016" PRIx64, alloc_hash(dd_buf_str(&folded)));
    return rc < 0 ? alloc_no_memory(err) : 0;
}

static int hostfile_detect(const struct alloc_input *in, struct dd_strv *warnings,
                           struct dd_err *err)
{
    (void)warnings;
    (void)err;
    return in->hostfile != NULL;
}

static int hostfile_fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    int rc = alloc_hostfile_read(&nodes, in, in->hostfile, err);
    if (rc < 0)
        return dd_err_where(err, rc, "--hostfile");
    char option[200];
    (void)snprintf(option, sizeof(option), "--hostfile=%s", in->hostfile);
    return take_list(a, in, &nodes, option, err);
}

const struct alloc_ops alloc_hostfile = {
    .name = "hostfile",
    .doc = "--hostfile: a file of host names",
    .detect = hostfile_detect,
    .fill = hostfile_fill,
};

static int hosts_detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    (void)warnings;
    if (in->hosts != NULL && in->hostfile != NULL)
        return dd_err_set(err, -EINVAL, "--hosts and --hostfile are mutually exclusive");
    return in->hosts != NULL;
}

static int hosts_fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    int rc = hostlist_parse(&nodes, in->hosts, err);
    if (rc < 0)
        return dd_err_where(err, rc, "--hosts");
    return take_list(a, in, &nodes, "--hosts", err);
}

const struct alloc_ops alloc_hosts = {
    .name = "hosts",
    .doc = "--hosts: a list of host names",
    .detect = hosts_detect,
    .fill = hosts_fill,
};
