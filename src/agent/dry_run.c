#include "agent/dry_run.h"

#include "agent/relayed_store.h"
#include "agent/spec.h"
#include "base/utf8.h"
#include "net/addr.h"
#include "rdzv/elect.h"
#include "rdzv/static_plan.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static int dry_run_no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Return how many nodes a round has if all nodes join; the others are spare nodes. */
static int dry_run_round_size(const struct agent_cfg *cfg)
{
    const int max = cfg->rdzv.max_nodes;
    return max > 0 && max < cfg->alloc->nnodes ? max : cfg->alloc->nnodes;
}

static bool dry_run_is_spare(const struct agent_cfg *cfg)
{
    return cfg->alloc->index >= dry_run_round_size(cfg);
}

static int dry_run_nodes(struct hostlist **ret, const struct agent_cfg *cfg)
{
    const size_t n = (size_t)dry_run_round_size(cfg);
    int rc = hostlist_new(ret);
    for (size_t i = 0; rc == 0 && i < n && i < hostlist_count(cfg->alloc->nodes); i++)
        rc = hostlist_push(*ret, hostlist_nth(cfg->alloc->nodes, i));
    return rc;
}

/* Fill in the values that a run would use. Placeholders in <> stand for values that are only known
 * at run time. A spare node has no workers. */
static int make_plan(struct plan *p, const struct agent_cfg *cfg, bool simulated,
                     struct dd_err *err)
{
    const struct alloc *al = cfg->alloc;
    uint16_t hashed[ELECT_PUBLIC];
    elect_ports(al->job_id, 0, hashed, ELECT_PUBLIC);
    *p = (struct plan){.max_restarts = cfg->rdzv.max_restarts,
                       .master_port = al->nports > 0 ? al->ports[0] : hashed[0]};
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    if (dry_run_nodes(&nodes, cfg) < 0)
        return dry_run_no_memory(err);
    const bool spare = dry_run_is_spare(cfg);
    const struct static_plan f = {.nodes = nodes,
                                  .nnodes = dry_run_round_size(cfg),
                                  .size = cfg->slots,
                                  .node_rank = al->index > 0 && !spare ? al->index : 0};
    int rc = static_plan_make(p, &f, err);
    if (rc < 0)
        return rc;
    if (spare) {
        p->local_size = 0;
        p->node_rank = p->first_rank = -1;
    }
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
                                           "HOROVOD_", "JAX_",   "NCCL_",  "OMPI_", "PMI",
                                           "ROLE_",    "SLURM_", "TORCH",  "TP_"};
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

/* Make the command line and the environment of a worker. */
static int dry_run_make(struct dd_strv *argv, struct dd_strv *env, const struct spec_input *in,
                        struct dd_err *err)
{
    int rc = spec_make(argv, env, in, err);
    if (rc < 0)
        return rc;
    const bool heartbeat = in->cfg->hang.timeout_ns > 0;
    rc = dd_env_set(env, "DDRUN_STEPS", "<file>");
    if (rc == 0 && heartbeat)
        rc = dd_env_set(env, "DDRUN_HEARTBEAT_FILE", "<file>");
    if (rc == 0 && heartbeat)
        rc = dd_env_set(env, "DDRUN_HEARTBEAT_FD", "<number>");
    return rc < 0 ? dry_run_no_memory(err) : 0;
}

static int put_worker(void *arg, const struct spec_input *in, struct dd_err *err)
{
    struct dd_buf *out = arg;
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    int rc = dry_run_make(&argv, &env, in, err);
    if (rc < 0)
        return rc;
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
    if (dry_run_is_spare(cfg))
        return dd_buf_printf(out,
                             "%s would be a spare node: a round has at most %d node%s (--nnodes)\n",
                             cfg->node_name, p->nnodes, p->nnodes == 1 ? "" : "s");
    int rc = n == 1 ? dd_buf_printf(out, "Would start 1 worker on %s (rank %d of %d)\n",
                                    cfg->node_name, p->first_rank, p->world_size)
                    : dd_buf_printf(out, "Would start %d workers on %s (ranks %d-%d of %d)\n", n,
                                    cfg->node_name, p->first_rank, p->first_rank + n - 1,
                                    p->world_size);
    if (rc == 0 && p->nnodes > 1)
        rc = dd_buf_puts(out, "if all nodes have as many workers as this one\n");
    if (rc == 0)
        rc = dd_buf_printf(out, "node %d of %d (%s", p->node_rank, p->nnodes, p->nodes);
    if (rc == 0 && p->nnodes < cfg->alloc->nnodes)
        rc = dd_buf_printf(out, "; spare nodes: %d", cfg->alloc->nnodes - p->nnodes);
    if (rc == 0)
        rc = dd_buf_printf(out, "), source: %s, job %s\n", cfg->alloc->source, cfg->alloc->job_id);
    if (rc == 0 && cfg->warm.plan != NULL)
        rc = put_line(out, "", cfg->warm.plan);
    if (rc == 0 && cfg->staging.plan != NULL)
        rc = put_line(out, "", cfg->staging.plan);
    if (rc == 0 && cfg->compile_cache.plan != NULL)
        rc = put_line(out, "", cfg->compile_cache.plan);
    return rc < 0 ? rc
                  : dd_buf_puts(out, "Values in <> are set at run time; MASTER_PORT may change if "
                                     "that port is in use.\n");
}

typedef int (*dry_run_each)(void *arg, const struct spec_input *in, struct dd_err *err);

/* Call `each` for the workers of this node. */
static int dry_run_workers(const struct plan *p, const struct agent_cfg *cfg, bool simulated,
                           dry_run_each each, void *arg, struct dd_err *err)
{
    const bool here = cfg->alloc->nnodes == 1 || simulated;
    const char *iface = cfg->iface != NULL ? cfg->iface : here ? "lo" : "<interface>";
    struct net_worker_ifaces ifs = {0};
    int rc = 0;
    if (iface[0] != '<')
        net_worker_ifaces_find(&ifs, iface, NULL, p->nnodes == 1);
    for (int i = 0; i < p->local_size && rc == 0; i++) {
        const struct spec_input in = {.cfg = cfg,
                                      .plan = p,
                                      .local_rank = i,
                                      .iface = iface,
                                      .nccl_iface = ifs.nccl[0] != '\0' ? ifs.nccl : NULL,
                                      .error_file = "<file>",
                                      .horovod_port = "<port>",
                                      .store_addr = cfg->relay_store ? RELAYED_STORE_ADDR : NULL,
                                      .store_port = cfg->relay_store ? "<port>" : NULL};
        rc = each(arg, &in, err);
    }
    return rc;
}

int agent_dry_run(struct dd_buf *out, const struct agent_cfg *cfg, bool simulated,
                  struct dd_err *err)
{
    DD_AUTO(plan) struct plan p = {0};
    int rc = make_plan(&p, cfg, simulated, err);
    if (rc < 0)
        return rc;
    return dry_run_put_head(out, cfg, &p) < 0
               ? dry_run_no_memory(err)
               : dry_run_workers(&p, cfg, simulated, put_worker, out, err);
}

/* ---- JSON ---- */

static json_t *dry_run_text(const char *text)
{
    DD_AUTO(free) char *clean = strdup(text);
    return clean != NULL ? json_string(dd_utf8_clean(clean)) : NULL;
}

static int dry_run_json_change(void *arg, const char *name, const char *value)
{
    json_t *worker = arg;
    DD_AUTO(free) char *key = strdup(name);
    if (key == NULL)
        return -ENOMEM;
    int rc = value == NULL
                 ? json_array_append_new(json_object_get(worker, "unset"), dry_run_text(name))
                 : json_object_set_new(json_object_get(worker, "environment"), dd_utf8_clean(key),
                                       dry_run_text(value));
    return rc < 0 ? -ENOMEM : 0;
}

static int dry_run_json_worker(void *arg, const struct spec_input *in, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv argv = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    json_t *words = json_array();
    json_t *worker = json_pack("{s:i,s:i,s:o,s:{},s:[]}", "rank",
                               in->plan->first_rank + in->local_rank, "local_rank", in->local_rank,
                               "argv", words, "environment", "unset");
    int rc = dry_run_make(&argv, &env, in, err);
    if (worker == NULL || json_array_append_new(arg, worker) < 0)
        return dry_run_no_memory(err);
    for (size_t i = 0; rc == 0 && i < argv.n; i++)
        if (json_array_append_new(words, dry_run_text(argv.v[i])) < 0)
            rc = dry_run_no_memory(err);
    if (rc == 0 && dd_env_diff(in->cfg->env, env.v, dry_run_json_change, worker) < 0)
        rc = dry_run_no_memory(err);
    return rc;
}

int agent_dry_run_json(struct dd_buf *out, const struct agent_cfg *cfg, bool simulated,
                       struct dd_err *err)
{
    DD_AUTO(plan) struct plan p = {0};
    int rc = make_plan(&p, cfg, simulated, err);
    if (rc < 0)
        return rc;
    json_t *workers = json_array();
    json_t *o = json_pack("{s:i,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:o}", "version", 1, "document",
                          "node", "job", cfg->alloc->job_id, "source", cfg->alloc->source, "node",
                          cfg->node_name, "nodes", p.nodes, "node_rank", p.node_rank, "nnodes",
                          p.nnodes, "first_rank", p.first_rank, "world_size", p.world_size,
                          "workers", workers);
    if (o == NULL)
        return dry_run_no_memory(err);
    if (cfg->warm.plan != NULL)
        (void)json_object_set_new(o, "warm", dry_run_text(cfg->warm.plan));
    if (cfg->staging.plan != NULL)
        (void)json_object_set_new(o, "stage", dry_run_text(cfg->staging.plan));
    if (cfg->compile_cache.plan != NULL)
        (void)json_object_set_new(o, "compile_cache", dry_run_text(cfg->compile_cache.plan));
    rc = dry_run_workers(&p, cfg, simulated, dry_run_json_worker, workers, err);
    DD_AUTO(free) char *text = rc == 0 ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (rc == 0 && (text == NULL || dd_buf_printf(out, "%s\n", text) < 0))
        rc = dry_run_no_memory(err);
    return rc;
}
