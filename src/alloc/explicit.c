/* torchrun's options: the number of nodes (--nnodes), the index of this node (--node-rank) and the
 * address of the first node (--rdzv-endpoint, --master-addr). The names of other nodes are unknown.
 *
 * Two rows: complete options (--nnodes and a rank or an endpoint) take precedence over schedulers;
 * incomplete ones apply only outside of schedulers' jobs.
 */
#include "alloc/alloc_inner.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Src: torchrun of torch 2.13: c10d endpoint without a port, --master-port not given. */
enum { ENDPOINT_PORT = 29400, MASTER_PORT = 29500 };

static int explicit_detect(const struct alloc_input *in, struct dd_strv *warnings,
                           struct dd_err *err)
{
    (void)warnings;
    (void)err;
    return in->max_nodes > 0 && (in->node_rank >= 0 || in->rdzv_endpoint != NULL);
}

static int endpoint_detect(const struct alloc_input *in, struct dd_strv *warnings,
                           struct dd_err *err)
{
    (void)warnings;
    (void)err;
    return in->node_rank >= 0 || in->rdzv_endpoint != NULL || in->master_addr != NULL;
}

int alloc_meet(struct alloc_hostport *ret, const struct alloc_input *in, struct dd_err *err)
{
    const char *text = in->rdzv_endpoint != NULL ? in->rdzv_endpoint : in->master_addr;
    const char *option = in->rdzv_endpoint != NULL ? "--rdzv-endpoint" : "--master-addr";
    *ret = (struct alloc_hostport){.port = -1};
    if (alloc_is_etcd(in)) {
        ret->port = in->master_port > 0 ? in->master_port : -1;
        return 0;
    }
    if (text != NULL) {
        int rc = alloc_hostport_parse(ret, text, err);
        if (rc < 0)
            return dd_err_where(err, rc, "%s", option);
    }
    if (ret->port < 0 && in->master_port > 0)
        ret->port = in->master_port;
    if (ret->port < 0 && in->rdzv_endpoint != NULL)
        ret->port = ENDPOINT_PORT;
    return 0;
}

/* Return the index of this node: --node-rank, or 0 for the only node without an endpoint
 * (torchrun's default) and for the host of the endpoint or of --master-addr; -1: the daemon assigns
 * it. */
static int find_index(const struct alloc_input *in, const char *host, int nnodes)
{
    if (in->node_rank >= 0)
        return in->node_rank;
    if (nnodes == 1 && in->rdzv_endpoint == NULL)
        return 0;
    return alloc_is_me(in, host) ? 0 : -1;
}

static int check(const struct alloc *a, const struct alloc_input *in,
                 const struct alloc_hostport *meet, struct dd_err *err)
{
    if (a->index >= a->nnodes)
        return dd_err_tip(err,
                          dd_err_set(err, -EINVAL, "--node-rank=%d is out of range for %d node%s",
                                     a->index, a->nnodes, a->nnodes == 1 ? "" : "s"),
                          "set --nnodes to the number of all nodes; ranks count from 0");
    if (meet->host[0] == '\0' && a->index > 0)
        return dd_err_set(err, -EINVAL,
                          "--node-rank=%d needs the address of node 0"
                          "\n  tip: add --master-addr=HOST or --rdzv-endpoint=HOST:PORT",
                          a->index);
    if (meet->port == 0 && (a->nnodes > 1 || a->index != 0))
        return dd_err_set(
            err, -EINVAL,
            "invalid endpoint '%.200s': port 0 is possible only for a job of one node, on this "
            "host: other nodes cannot find the port"
            "\n  tip: choose a port, for example %d",
            in->rdzv_endpoint != NULL ? in->rdzv_endpoint : meet->host, ENDPOINT_PORT);
    return 0;
}

/* Only one name is known: this machine's if it is the first node, otherwise the endpoint's. */
static int set_nodes(struct alloc *a, const struct alloc_input *in, char *host)
{
    host[strcspn(host, "%")] = '\0'; /* the zone of a link-local address is not part of a name */
    const char *name = a->index == 0 && hostlist_name_ok(in->hostname) ? in->hostname : host;
    int rc = hostlist_new(&a->nodes);
    return rc < 0 ? rc : hostlist_push(a->nodes, *name != '\0' ? name : "localhost");
}

static int fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    struct alloc_hostport meet;
    int rc = alloc_meet(&meet, in, err);
    if (rc < 0)
        return rc;
    if (meet.port < 0)
        meet.port = MASTER_PORT;
    a->nnodes = in->max_nodes > 0 ? in->max_nodes : 1;
    a->index = find_index(in, meet.host, a->nnodes);
    a->first_by_address = a->index == 0 && a->nnodes > 1 && in->node_rank < 0;
    rc = check(a, in, &meet, err);
    if (rc == 0 && in->min_nodes == in->max_nodes && !in->spares)
        rc = alloc_refuse_surplus(in, a->nnodes, err);
    if (rc < 0)
        return rc;
    if (meet.port > 0) {
        a->ports[a->nports++] = (uint16_t)meet.port;
        a->port_is_fixed = true;
    }
    /* Nodes may spell the endpoint differently, so derive the name of the job from the port; a
     * single node shares its name with no other. */
    if (a->nnodes == 1 && a->index == 0)
        rc = alloc_set(&a->job_id, "explicit.%d.%016" PRIx64, meet.port, in->nonce);
    else
        rc = alloc_set(&a->job_id, "explicit.%d", meet.port);
    if (rc == 0 && meet.host[0] != '\0')
        rc = alloc_set(&a->host_addr, "%s", meet.host);
    if (rc == 0)
        rc = set_nodes(a, in, meet.host);
    return rc < 0 ? alloc_no_memory(err) : 0;
}

const struct alloc_ops alloc_explicit = {
    .name = "explicit",
    .doc = "--nnodes with --node-rank or --rdzv-endpoint, as for torchrun",
    .detect = explicit_detect,
    .fill = fill,
};

const struct alloc_ops alloc_endpoint = {
    .name = "endpoint",
    .doc = "--rdzv-endpoint, --master-addr or --node-rank where no scheduler is found",
    .detect = endpoint_detect,
    .fill = fill,
};
