/* Fills the agent's configuration from the options and from what was found about this node. */
#include "cmd/ddrun_run.h"

#include "base/io.h"
#include "cmd/ddrun_check.h"
#include "cmd/ddrund_main.h"
#include "net/addr.h"
#include "node/numa.h"
#include "worker/hang.h"

#include <string.h>

static enum stacks_mode agent_cfg_stacks_mode(const char *name)
{
    return strcmp(name, "on-failure") == 0 ? STACKS_ON_FAILURE
           : strcmp(name, "on-hang") == 0  ? STACKS_ON_HANG
           : strcmp(name, "off") == 0      ? STACKS_OFF
                                           : STACKS_AUTO;
}

static enum slurm_env agent_cfg_slurm_env(const char *name)
{
    return strcmp(name, "keep") == 0    ? SLURM_ENV_KEEP
           : strcmp(name, "strip") == 0 ? SLURM_ENV_STRIP
                                        : SLURM_ENV_REWRITE;
}

static const char *agent_cfg_node_name(const struct run *r)
{
    const struct alloc *a = r->alloc;
    const char *name = a->index >= 0 ? hostlist_nth(a->nodes, (size_t)a->index) : NULL;
    if (name != NULL && (a->index > 0 || hostlist_count(a->nodes) == (size_t)a->nnodes))
        return name;
    return hostlist_name_ok(r->hostname) ? r->hostname
                                         : "localhost"; /* a host without a name: "(none)" */
}

static struct rdzv_cfg agent_cfg_rdzv_cfg(const struct run *r)
{
    const struct ddrun_options *o = r->o;
    const int here = r->alloc->nnodes;
    const bool said = o->nnodes.max > 0 && !o->standalone;
    const int most = said ? o->nnodes.max : here;
    const bool listed = hostlist_count(r->alloc->nodes) >= (size_t)here;
    int capacity = listed ? here : 2 * most;
    if (capacity < most)
        capacity = most;
    return (struct rdzv_cfg){
        .min_nodes = said ? o->nnodes.min : here,
        .max_nodes = most,
        .expected = here,
        .capacity = said && o->nnodes.range && capacity <= PLAN_MAX_NODES ? capacity : most,
        .max_restarts = o->max_restarts.most,
        .restart_window_ns = o->max_restarts.within_ns,
        .exit_rules = o->failure.exit_rules,
        .blame_window_ns = o->failure.blame_window,
        .leave_signal = o->failure.drain_signal.sig,
        .leave_ns = o->failure.drain_signal.ns,
        .progress_restarts = o->failure.progress_regex != NULL || o->failure.progress_file != NULL
                                 ? o->failure.progress_restarts
                                 : 0,
        .join_ns = o->rdzv_timeout,
        .last_call_ns = o->last_call,
        .rejoin_ns = o->rejoin_timeout,
        .grow = strcmp(o->grow, "now") == 0  ? RDZV_GROW_NOW
                : strcmp(o->grow, "no") == 0 ? RDZV_GROW_NO
                                             : RDZV_GROW_NEXT,
    };
}

/* Return --local-addr if it is a usable store address for a job on a single node, otherwise NULL.
 */
static const char *agent_cfg_only_here(const char *local_addr)
{
    struct net_addr addr;
    return local_addr != NULL && net_addr_parse(&addr, local_addr, 0) == 0 ? local_addr : NULL;
}

static int agent_cfg_mpi_of(const struct run *r)
{
    const char *how = r->o->mpi;
    return strcmp(how, "pmi1") == 0   ? MPI_SERVERS_PMI1
           : strcmp(how, "pmix") == 0 ? MPI_SERVERS_PMIX
           : strcmp(how, "auto") == 0
               ? MPI_SERVERS_PMI1 | (r->pmix_helper[0] != '\0' ? MPI_SERVERS_PMIX : 0)
               : 0;
}

static struct net_key_input agent_cfg_key_input(const struct run *r)
{
    const struct ddrun_options *o = r->o;
    return (struct net_key_input){.env = r->env.v,
                                  .key_file = o->key_file,
                                  .psk = r->alloc->psk,
                                  .cookie = r->alloc->cookie,
                                  .use_cookie = strcmp(o->key_source, "pbs-cookie") == 0,
                                  .run = r->alloc->cookie,
                                  .munge_socket = o->munge_socket,
                                  .job_id = r->alloc->job_id,
                                  .insecure = o->insecure};
}

static struct output_spec agent_cfg_output_cfg(const struct run *r)
{
    const struct ddrun_options *o = r->o;
    const bool watch = o->hang.timeout > 0 &&
                       (hang_signs(o->hang.signs, r->gpus > 0) & HANG_SIGN_OUTPUT) != 0;
    return (struct output_spec){
        .log_dir = r->log_dir != NULL ? r->log_dir : o->log_dir,
        .redirects = o->redirects,
        .tee = o->tee,
        .local_ranks_filter = o->local_ranks_filter,
        .filters = {o->stdout_filters, o->stderr_filters},
        .prefix = dd_env_get_nonempty(r->env.v, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        .tmp_dir = dd_env_get_nonempty(r->env.v, "TMPDIR"),
        .log = &r->log,
        .role = o->role,
        .watch = watch || o->failure.progress_regex != NULL,
        .label = o->label || o->output == OUTPUT_LABELS,
        .fold = o->fold,
        .raw = o->output == OUTPUT_RAW,
        .log_all = o->redirects == NULL && o->tee == NULL && !o->by_torchrun};
}

/* Set what the workers are and what they execute. */
static void agent_cfg_fill_workers(struct agent_cfg *a, const struct run *r)
{
    const struct ddrun_options *o = r->o;
    a->env = r->env.v;
    a->worker.program = &r->program;
    a->directory = r->directory;
    a->staging = (struct staging_cfg){.paths = &r->stage_paths,
                                      .helper = r->stage_helper,
                                      .dir = &r->dirs.of[NODE_DIR_STAGE],
                                      .spare = &r->dirs.of[NODE_DIR_STAGE_SPARE],
                                      .mount = strcmp(o->stage.mount, "no") != 0,
                                      .keep = o->stage.keep};
    a->compile_cache = (struct staging_cfg){.paths = &r->compile_cache.path,
                                            .helper = r->stage_helper,
                                            .dir = &r->dirs.of[NODE_DIR_CACHE],
                                            .kind = r->compile_cache.kind,
                                            .most = o->compile_cache.most};
    a->collecting = (struct collecting_cfg){.patterns = &r->collect.patterns,
                                            .dirs = &r->collect.dirs,
                                            .helper = r->stage_helper,
                                            .cache = &r->agent.compile_cache,
                                            .directory = r->directory != NULL ? r->directory
                                                                              : r->collect.here};
    a->slots = r->slots;
    a->worker.role = o->role;
    a->stdin_rank = o->stdin_rank;
    a->pty_rank = o->pty;
    a->output = agent_cfg_output_cfg(r);
    a->worker.slurm_env = agent_cfg_slurm_env(o->slurm_env);
    a->worker.signals_to_handle = o->signals.text;
    a->ending_signals = &o->signals.set;
    a->worker.horovod_elastic = o->horovodrun.min_np > 0 || o->horovodrun.max_np > 0;
    a->worker.virtual_local_rank = o->virtual_local_rank;
    a->worker.env_rules = o->framework.env.v;
    a->worker.wrap_rules = o->wrap.v;
    a->worker.preload_rules = o->preload.v;
    a->frameworks = framework_options_names(&o->framework);
    a->tf_roles = framework_options_roles(&o->framework);
    a->bind.cpus = strcmp(o->bind, "auto") == 0;
    a->bind.numa = node_numa_mode(o->numa_binding);
    a->mpi.protocols = agent_cfg_mpi_of(r);
    a->mpi.pmix_helper = r->pmix_helper;
    a->mpi.tmp = &r->dirs.of[NODE_DIR_TMP];
    a->mpi.shm = &r->dirs.of[NODE_DIR_SHM];
    a->error_names = &r->error_names;
    a->relay_store = strcmp(o->store, "relay") == 0;
    a->warm.on = o->warm != NULL;
    a->warm.command = r->warm.command;
    a->warm.modules = r->warm.modules.n > 0 ? &r->warm.modules : NULL;
    a->warm.plan = r->warm.plan;
}

/* Set time limits, restarts, health checks, and what follows the end of the job. */
static void agent_cfg_fill_limits(struct agent_cfg *a, const struct run *r)
{
    const struct ddrun_options *o = r->o;
    a->heartbeat_ns = o->heartbeat;
    a->rdzv_timeout_ns = o->rdzv_timeout;
    a->timeout_ns = o->timeout;
    a->grace_ms = ddrun_grace_ms(o, r->alloc);
    a->before_end.sig = o->signal_before_end.sig;
    a->before_end.ns = o->signal_before_end.ns;
    a->load_interval_ns = o->straggler_interval;
    a->watch_nodes_ns = o->failure.watch_nodes == 0 && o->failure.drain_signal.sig != 0
                            ? WATCH_NODES_S * DD_NS_PER_S
                            : o->failure.watch_nodes;
    a->requeue_on = o->requeue_on;
    a->hang.timeout_ns = o->hang.timeout;
    a->hang.signs = o->hang.signs;
    a->hang.has_gpus = r->gpus > 0;
    a->hang.command = hang_options_cuda_core(&o->hang) ? NULL : o->hang.command;
    a->stacks.mode = agent_cfg_stacks_mode(o->stacks.when);
    a->stacks.native = o->stacks.native;
    a->stacks.timeout_ns = o->stacks.timeout;
    a->stacks.py_spy = o->stacks.py_spy;
    a->progress.file = o->failure.progress_file;
    a->progress.regex = o->failure.progress_regex;
    a->health.list = &o->health;
    a->health.visible = dd_env_get(r->env.v, "CUDA_VISIBLE_DEVICES");
    a->health.nvml = dd_env_get_nonempty(r->env.v, "DDRUN_NVML_LIBRARY");
    a->health.usage_ms = (unsigned)(o->straggler_interval / DD_NS_PER_MS);
    a->health.gpus = r->gpus;
    a->health.tmpdir = dd_env_get_nonempty(r->env.v, "TMPDIR");
    a->health.command = o->health_check;
    a->health.limit_ns = o->health_timeout;
}

/* Return the tip about choosing another port for the daemon. */
static const char *agent_cfg_port_tip(const struct run *r)
{
    const struct alloc *a = r->alloc;
    if (a->port_is_fixed && r->o->rdzv_endpoint != NULL && !etcd_url_is(r->o->rdzv_endpoint))
        return "choose another port for --rdzv-endpoint, on all nodes";
    if (a->port_is_fixed &&
        (strcmp(a->source, "explicit") == 0 || strcmp(a->source, "endpoint") == 0))
        return "choose another port with --master-port (or in --master-addr), on all nodes";
    return a->port_is_fixed
               ? "omit --master-port, or the port in --master-addr; ddrun then finds a free port"
               : "choose a free port with --master-port";
}

/* Set how the nodes reach each other. */
static void agent_cfg_fill_network(struct agent_cfg *a, const struct run *r)
{
    const struct ddrun_options *o = r->o;
    const bool alone = r->alloc->nnodes == 1;
    const char *simulated = r->source_addr[0] != '\0' ? r->source_addr : NULL;
    a->source_addr = simulated;
    a->listen_addr = simulated != NULL ? simulated
                     : alone           ? agent_cfg_only_here(o->local_addr)
                                       : NULL;
    /* a single machine needs no interface; simulated nodes use loopback addresses */
    a->iface = !alone && r->emulate == NULL ? o->iface : NULL;
    a->port_tip = agent_cfg_port_tip(r);
    a->key_in = agent_cfg_key_input(r);
    a->etcd.url = r->etcd.bases.n > 0 ? &r->etcd : NULL;
    a->etcd.password = r->etcd_password;
    a->notify = o->notify;
    a->timeline = o->timeline;
    a->etcd.helper = a->web_helper = r->web_helper;
}

void run_fill_agent(struct run *r)
{
    r->agent = (struct agent_cfg){
        .alloc = r->alloc,
        .node_name = agent_cfg_node_name(r),
        .rdzv = agent_cfg_rdzv_cfg(r),
        .terminal = &r->terminal,
        .report = r->o->report,
        .metrics = r->o->metrics,
        .profile = r->o->profile,
        .run_daemon = ddrund_run_job,
        .log = &r->log,
        .start_ns = r->start_ns,
        .launched_ns = r->launched_ns,
    };
    agent_cfg_fill_workers(&r->agent, r);
    agent_cfg_fill_limits(&r->agent, r);
    agent_cfg_fill_network(&r->agent, r);
    if (r->alloc->nnodes > 1)
        (void)snprintf(r->log.who, sizeof(r->log.who), "ddrun[%.60s]", r->agent.node_name);
}
