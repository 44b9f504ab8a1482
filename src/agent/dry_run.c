#include "agent/dry_run.h"

#include "agent/spec.h"
#include "net/addr.h"
#include "rdzv/elect.h"
#include "rdzv/static_plan.h"

#include <errno.h>
#include <string.h>

static int dry_run_no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Fill in the values that a run would use. Values that are only known at run time stand in <>. */
static int make_plan(struct plan *p, const struct agent_cfg *cfg, bool simulated,
                     struct dd_err *err)
{
    const struct alloc *al = cfg->alloc;
    uint16_t hashed[ELECT_PUBLIC];
    elect_ports(al->job_id, 0, hashed, ELECT_PUBLIC);
    *p = (struct plan){.max_restarts = cfg->rdzv.max_restarts,
                       .master_port = al->nports > 0 ? al->ports[0] : hashed[0]};
    const struct static_plan f = {.nodes = al->nodes,
                                  .nnodes = al->nnodes,
                                  .size = cfg->slots,
                                  .node_rank = al->index > 0 ? al->index : 0};
    int rc = static_plan_make(p, &f, err);
    if (rc < 0)
        return rc;
    const char *host = al->host_addr != NULL ? al->host_addr : hostlist_nth(al->nodes, 0);
    const char *known = simulated ? al->host_addr : cfg->listen_addr;
    if (known == NULL && p->nnodes == 1)
        known = "127.0.0.1";
    rc = known != NULL
             ? asprintf(&p->master_addr, "%s", known)
             : asprintf(&p->master_addr, "<address of %s>", host != NULL ? host : "the first node");
    if (rc < 0)
        p->master_addr = NULL;
    if (p->master_addr == NULL || asprintf(&p->coordinator, "%s:<port>", p->master_addr) < 0)
        return dry_run_no_memory(err);
    for (int i = 0; i < p->world_size && framework_wants_ports(cfg->frameworks); i++) {
        const char *name = hostlist_nth(al->nodes, (size_t)(i / cfg->slots));
        rc = known != NULL ? dd_strv_pushf(&p->endpoints, "%s:<port>", p->master_addr)
                           : dd_strv_pushf(&p->endpoints, "<address of %s>:<port>",
                                           name != NULL ? name : "a node");
        if (rc < 0)
            return dry_run_no_memory(err);
    }
    return 0;
}

/* Append one environment entry or argument, escaped, on a line of its own. */
static int put_line(struct dd_buf *out, const char *lead, const char *text)
{
    size_t size = 4 * strlen(text) + 16;
    DD_AUTO(free) char *escaped = malloc(size);
    return escaped == NULL ? -ENOMEM
                           : dd_buf_printf(out, "%s%s\n", lead,
                                           dd_log_escape(escaped, size, text, strlen(text)));
}

static int put_change(void *arg, const char *name, const char *value)
{
    DD_AUTO(free) char *line = NULL;
    if (value == NULL)
        return put_line(arg, "  unset ", name);
    return asprintf(&line, "%s=%s", name, value) < 0 ? -ENOMEM : put_line(arg, "  ", line);
}

static int put_worker(struct dd_buf *out, const struct spec_input *in, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    int rc = spec_make(&argv, &env, in, err);
    if (rc < 0)
        return rc;
    if (in->cfg->hang.timeout_ns > 0)
        rc = dd_env_set(&env, "DDRUN_HEARTBEAT_FILE", "<file>");
    if (rc == 0 && in->cfg->hang.timeout_ns > 0)
        rc = dd_env_set(&env, "DDRUN_HEARTBEAT_FD", "<number>");
    if (rc == 0)
        rc = dd_buf_printf(out, "rank %d:\n", in->plan->first_rank + in->local_rank);
    for (size_t i = 0; i < argv.n && rc == 0; i++)
        rc = put_line(out, i == 0 ? "  run " : "      ", argv.v[i]);
    if (rc == 0)
        rc = dd_env_diff(in->cfg->env, env.v, put_change, out);
    return rc < 0 ? dry_run_no_memory(err) : 0;
}

int agent_dry_run(struct dd_buf *out, const struct agent_cfg *cfg, bool simulated,
                  struct dd_err *err)
{
    DD_AUTO(plan) struct plan p = {0};
    const bool here = cfg->alloc->nnodes == 1 || simulated;
    const char *iface = cfg->iface != NULL ? cfg->iface : here ? "lo" : "<interface>";
    struct net_worker_ifaces ifs = {0};
    int rc = make_plan(&p, cfg, simulated, err);
    if (rc < 0)
        return rc;
    if (iface[0] != '<')
        net_worker_ifaces_find(&ifs, iface, NULL, p.nnodes == 1);
    if (dd_buf_printf(out, "%s: node %d of %d (%s), found by: %s; job %s\n", cfg->node_name,
                      p.node_rank, p.nnodes, p.nodes, cfg->alloc->source, cfg->alloc->job_id) < 0 ||
        dd_buf_printf(out, "ranks %d to %d of %d%s\n", p.first_rank,
                      p.first_rank + p.local_size - 1, p.world_size,
                      p.nnodes > 1 ? ", assuming that all nodes run as many workers as this one"
                                   : "") < 0 ||
        dd_buf_puts(
            out,
            "Values in <> are set at run time; MASTER_PORT may change if that port is in use.\n") <
            0)
        return dry_run_no_memory(err);
    for (int i = 0; i < p.local_size && rc == 0; i++) {
        const struct spec_input in = {.cfg = cfg,
                                      .plan = &p,
                                      .local_rank = i,
                                      .iface = iface,
                                      .nccl_iface = ifs.nccl[0] != '\0' ? ifs.nccl : NULL,
                                      .error_file = "<file>",
                                      .horovod_port = "<port>"};
        rc = put_worker(out, &in, err);
    }
    return rc;
}
