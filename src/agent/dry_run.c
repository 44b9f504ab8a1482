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

/* The changes of a worker's environment in two groups: first the variables that programs use, then
 * those that only libraries and frameworks read. */
struct dry_run_changes {
    struct dd_buf main, libraries;
};

static bool dry_run_is_for_libraries(const char *name)
{
    static const char *const prefixes[] = {"CCL_",     "CROSS_", "DDRUN_", "GLOO_", "GROUP_",
                                           "HOROVOD_", "JAX_",   "OMPI_",  "PMI",   "ROLE_",
                                           "SLURM_",   "TORCH",  "TP_"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static int dry_run_put_change(void *arg, const char *name, const char *value)
{
    struct dry_run_changes *c = arg;
    DD_AUTO(free) char *line = NULL;
    if (value == NULL)
        return put_line(&c->libraries, "  unset ", name);
    struct dd_buf *out = dry_run_is_for_libraries(name) ? &c->libraries : &c->main;
    return asprintf(&line, "%s=%s", name, value) < 0 ? -ENOMEM : put_line(out, "  ", line);
}

static int dry_run_put_changes(struct dd_buf *out, char *const *before, char *const *after)
{
    struct dry_run_changes c = {DD_BUF_INIT(64 << 20), DD_BUF_INIT(64 << 20)};
    int rc = dd_env_diff(before, after, dry_run_put_change, &c);
    if (rc == 0)
        rc = dd_buf_append(out, c.main.data, c.main.len);
    if (rc == 0 && c.libraries.len > 0)
        rc = dd_buf_puts(out, "  for libraries and frameworks:\n");
    if (rc == 0)
        rc = dd_buf_append(out, c.libraries.data, c.libraries.len);
    dd_buf_done(&c.main);
    dd_buf_done(&c.libraries);
    return rc;
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
        rc = dry_run_put_changes(out, in->cfg->env, env.v);
    return rc < 0 ? dry_run_no_memory(err) : 0;
}

static int dry_run_put_head(struct dd_buf *out, const struct agent_cfg *cfg, const struct plan *p)
{
    const int n = p->local_size;
    int rc = n == 1 ? dd_buf_printf(out, "Would start 1 worker on %s (rank %d of %d)\n",
                                    cfg->node_name, p->first_rank, p->world_size)
                    : dd_buf_printf(out, "Would start %d workers on %s (ranks %d-%d of %d)\n", n,
                                    cfg->node_name, p->first_rank, p->first_rank + n - 1,
                                    p->world_size);
    if (rc == 0 && p->nnodes > 1)
        rc = dd_buf_puts(out, "if all nodes have as many workers as this one\n");
    if (rc == 0)
        rc = dd_buf_printf(out, "node %d of %d (%s), source: %s, job %s\n", p->node_rank, p->nnodes,
                           p->nodes, cfg->alloc->source, cfg->alloc->job_id);
    return rc < 0 ? rc
                  : dd_buf_puts(out, "Values in <> are set at run time; MASTER_PORT may change if "
                                     "that port is in use.\n");
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
    if (dry_run_put_head(out, cfg, &p) < 0)
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
