/* From options and what was found out of this node to the agent's configuration. */
#include "cmd/ddrun_run.h"

#include "cmd/ddrun_check.h"
#include "net/addr.h"
#include "node/numa.h"

#include <string.h>

static int hang_signs(const char *name)
{
    return strcmp(name, "output") == 0 ? HANG_SIGN_OUTPUT
           : strcmp(name, "file") == 0 ? HANG_SIGN_FILE
                                       : HANG_SIGN_OUTPUT | HANG_SIGN_FILE;
}

static enum slurm_env slurm_env(const char *name)
{
    return strcmp(name, "keep") == 0    ? SLURM_ENV_KEEP
           : strcmp(name, "strip") == 0 ? SLURM_ENV_STRIP
                                        : SLURM_ENV_REWRITE;
}

static const char *node_name(const struct run *r)
{
    const struct alloc *a = r->alloc;
    const char *name = a->index >= 0 ? hostlist_nth(a->nodes, (size_t)a->index) : NULL;
    return name != NULL && (a->index > 0 || hostlist_count(a->nodes) == (size_t)a->nnodes)
               ? name
               : r->hostname;
}

static struct rdzv_cfg rdzv_cfg(const struct run *r)
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
        .join_ns = o->rdzv_timeout,
        .last_call_ns = o->last_call,
        .rejoin_ns = o->rejoin_timeout,
        .grow = strcmp(o->grow, "now") == 0  ? RDZV_GROW_NOW
                : strcmp(o->grow, "no") == 0 ? RDZV_GROW_NO
                                             : RDZV_GROW_NEXT,
    };
}

/* --local-addr as the address of the store of a single node, where it is one. */
static const char *only_here(const char *local_addr)
{
    struct net_addr addr;
    return local_addr != NULL && net_addr_parse(&addr, local_addr, 0) == 0 ? local_addr : NULL;
}

static int mpi_of(const struct run *r)
{
    const char *how = r->o->mpi;
    return strcmp(how, "pmi1") == 0   ? AGENT_MPI_PMI1
           : strcmp(how, "pmix") == 0 ? AGENT_MPI_PMIX
           : strcmp(how, "auto") == 0
               ? AGENT_MPI_PMI1 | (r->pmix_helper[0] != '\0' ? AGENT_MPI_PMIX : 0)
               : 0;
}

static struct net_key_input key_input(const struct run *r)
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

void run_fill_agent(struct run *r)
{
    const struct ddrun_options *o = r->o;
    r->agent = (struct agent_cfg){
        .alloc = r->alloc,
        .node_name = node_name(r),
        .env = r->env.v,
        .program = &r->program,
        .folder = r->folder,
        .slots = r->slots,
        .rdzv = rdzv_cfg(r),
        .heartbeat_ns = o->heartbeat,
        .rdzv_timeout_ns = o->rdzv_timeout,
        .timeout_ns = o->timeout,
        .grace_ms = ddrun_grace_ms(o, r->alloc),
        .before_end = {.sig = o->signal_before_end.sig, .ns = o->signal_before_end.ns},
        .requeue_on = o->requeue_on,
        .stdin_rank = o->stdin_rank,
        .pty_rank = o->pty,
        .terminal = &r->terminal,
        .hang = {.timeout_ns = o->hang_timeout,
                 .signs = hang_signs(o->hang_sign),
                 .command = o->on_hang},
        .output = {.log_dir = r->log_dir != NULL ? r->log_dir : o->log_dir,
                   .redirects = o->redirects,
                   .tee = o->tee,
                   .local_ranks_filter = o->local_ranks_filter,
                   .filters = {o->stdout_filters, o->stderr_filters},
                   .prefix = dd_env_get_nonempty(r->env.v, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
                   .tmp_dir = dd_env_get_nonempty(r->env.v, "TMPDIR"),
                   .log = &r->log,
                   .role = o->role,
                   .watch = o->hang_timeout > 0 &&
                            (hang_signs(o->hang_sign) & HANG_SIGN_OUTPUT) != 0,
                   .label = o->label || o->output == OUTPUT_LABELS,
                   .raw = o->output == OUTPUT_RAW,
                   .log_all = o->redirects == NULL && o->tee == NULL && !o->by_torchrun},
        .health = {.checks = o->health,
                   .gpus = r->gpus,
                   .tmpdir = dd_env_get_nonempty(r->env.v, "TMPDIR"),
                   .command = o->health_check,
                   .limit_ns = o->health_timeout},
        .report = o->report,
        .role = o->role,
        .slurm_env = slurm_env(o->slurm_env),
        .signals_to_handle = o->signals.text,
        .ending_signals = &o->signals.set,
        .horovod_elastic = o->horovodrun.min_np > 0 || o->horovodrun.max_np > 0,
        .virtual_local_rank = o->virtual_local_rank,
        .env_rules = o->framework.env.v,
        .wrap_rules = o->wrap.v,
        .preload_rules = o->preload.v,
        .frameworks = framework_options_names(&o->framework),
        .tf_roles = framework_options_roles(&o->framework),
        .mpi = mpi_of(r),
        .etcd = r->etcd.bases.n > 0 ? &r->etcd : NULL,
        .etcd_password = r->etcd_password,
        .notify = o->notify,
        .web_helper = r->web_helper,
        .pmix_helper = r->pmix_helper,
        .tmp = &r->tmp,
        .error_names = &r->error_names,
        .shm = &r->shm,
        .bind_cpus = strcmp(o->bind, "auto") == 0,
        .numa = node_numa_mode(o->numa_binding),
        .source_addr = r->source_addr[0] != '\0' ? r->source_addr : NULL,
        .listen_addr = r->source_addr[0] != '\0' ? r->source_addr : NULL,
        /* one machine needs no network, and simulated nodes have theirs */
        .iface = r->alloc->nnodes > 1 && r->emulate == NULL ? o->iface : NULL,
        .key_in = key_input(r),
        .ddrund = r->ddrund,
        .log = &r->log,
        .start_ns = r->start_ns,
    };
    if (r->alloc->nnodes == 1 && r->agent.listen_addr == NULL)
        r->agent.listen_addr = only_here(o->local_addr);
    if (r->alloc->nnodes > 1)
        (void)snprintf(r->log.who, sizeof(r->log.who), "ddrun[%.60s]", r->agent.node_name);
}
