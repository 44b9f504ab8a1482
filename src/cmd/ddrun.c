/* ddrun: options, allocation, program and number of workers; then the agent under its guardian. */
#include "agent/agent.h"
#include "agent/dry_run.h"
#include "agent/error_files.h"
#include "agent/guardian.h"
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddrun_launch.h"
#include "cmd/ddrun_options.h"
#include "cmd/horovodrun.h"
#include "cmd/outer.h"
#include "config.h"
#include "launch/emulate.h"
#include "net/addr.h"
#include "node/cpu.h"
#include "node/gpu.h"
#include "worker/program.h"
#include "worker/rules.h"

#include <errno.h>
#include <limits.h>
#include <net/if.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    GUARDIAN_EXTRA_MS = 5000, /* beyond the workers' grace, for ddrund to tell the other nodes */
    LOG_WAIT_MS = 300,        /* for a terminal that is held, a pipe that is full: the daemon waits for signs of life */
};

/* One run of ddrun on one node, put together step by step. */
struct run {
    const struct ddrun_options *o;
    struct dd_log log;
    uint64_t start_ns;
    char *const *script; /* SCRIPT and its arguments */
    const struct emulate *emulate; /* NULL: a real node */
    const struct alloc *given;     /* by the process that started us; NULL */
    char source_addr[32];          /* of a simulated node */
    char hostname[256];
    struct dd_strv env, local_addrs, program;
    struct alloc *alloc;
    int slots, gpus;
    char ddrund[PATH_MAX], pmix_helper[PATH_MAX]; /* of the latter "": not there, or not asked for */
    struct pmi_place mpi_place;
    struct agent_cfg agent;
    char *error_prefix; /* of the error files of this node's workers; NULL: they have others, or none */
    struct terminal terminal; /* on stdin, as we have found it */
};

static void run_done(struct run *r)
{
    dd_strv_done(&r->env);
    dd_strv_done(&r->local_addrs);
    dd_strv_done(&r->program);
    free(r->error_prefix);
    r->error_prefix = NULL;
    pmi_place_done(&r->mpi_place);
    alloc_free(r->alloc);
    r->alloc = NULL;
}

static int check_iface(const char *name, struct dd_err *err)
{
    DD_AUTO(free) struct net_iface *ifs = NULL;
    struct net_addr addr;
    size_t n = 0;
    if (name == NULL)
        return 0;
    if (if_nametoindex(name) > 0) {
        int rc = net_ifaces(&ifs, &n, err);
        return rc == 0 && net_iface_addr(ifs, n, name, &addr) < 0
                   ? dd_err_set(err, -EINVAL, "--iface=%s: it has no address that other nodes could use", name)
                   : rc;
    }
    DD_AUTO(buf) struct dd_buf there = DD_BUF_INIT(1 << 16);
    struct if_nameindex *all = if_nameindex();
    for (const struct if_nameindex *i = all; i != NULL && i->if_index > 0; i++)
        (void)dd_buf_printf(&there, "%s%s", i == all ? "" : ", ", i->if_name);
    if_freenameindex(all);
    const char *names = dd_buf_str(&there);
    return dd_err_set(err, -EINVAL, "--iface=%s: this node has no such interface; it has %.400s", name,
                      names != NULL ? names : "none");
}

/* Found out before the job rather than after it. */
static int check_report(const char *path, struct dd_err *err)
{
    DD_AUTO(free) char *folder = path != NULL ? strdup(path) : NULL;
    if (folder == NULL)
        return 0;
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder] = '\0';
    return access(slash != NULL ? folder : ".", W_OK | X_OK) == 0
               ? 0
               : dd_err_set(err, -errno, "--report=%s: cannot write there: %m", path);
}

/* What one option says and another takes back: neither is guessed to be the one that is meant. */
static int check_options(const struct ddrun_options *o, struct dd_err *err)
{
    const int here = o->standalone ? 1 : o->simulate_nodes;
    const char *other = NULL;
    if (o->hosts != NULL)
        other = "--hosts";
    else if (o->hostfile != NULL)
        other = "--hostfile";
    else if (o->standalone && o->simulate_nodes > 0)
        other = "--simulate-nodes";
    else if (o->nnodes.max > 0 && (here < o->nnodes.min || (here > o->nnodes.max && !o->nnodes.range)))
        other = "--nnodes";
    if (here == 0 || other == NULL)
        return 0;
    return dd_err_set(err, -EINVAL,
                      "%s runs %d node%s on this machine, which contradicts %s; leave one of them out",
                      o->standalone ? "--standalone" : "--simulate-nodes", here,
                      here == 1 ? "" : "s", other);
}

static int check_rules(const struct ddrun_options *o, struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->env.n && rc == 0; i++)
        rc = rule_check_env(o->env.v[i], err);
    for (size_t i = 0; i < o->wrap.n && rc == 0; i++)
        rc = rule_check(o->wrap.v[i], "--wrap", "'0:gdb -batch -ex run -ex bt --args'", err);
    return rc;
}

/* What the user and this machine say. */
static int fill_alloc_input(const struct run *r, struct alloc_input *in, struct dd_err *err)
{
    const struct ddrun_options *o = r->o;
    *in = (struct alloc_input){
        .env = r->env.v,
        .hostname = r->hostname,
        .local_addrs = r->local_addrs.v,
        .read_file = dd_read_file,
        .min_nodes = o->nnodes.min,
        .max_nodes = o->nnodes.max,
        .spares = o->nnodes.range,
        .node_rank = o->node_rank,
        .master_addr = o->master_addr,
        .master_port = o->master_port,
        .rdzv_endpoint = o->rdzv_endpoint,
        .rdzv_id = o->rdzv_id,
        .hosts = o->hosts,
        .hostfile = o->hostfile,
        .have_nproc = o->nproc_per_node != NULL || o->horovodrun.np > 0 || o->horovodrun.n > 0,
    };
    return getrandom(&in->nonce, sizeof(in->nonce), 0) < 0 ? dd_err_set(err, -errno, "no random numbers: %m") : 0;
}

/* Which job, which nodes, which of them am I. */
static int find_alloc(struct run *r, int index, struct dd_err *err)
{
    struct alloc_input in;
    char *nothing[] = {NULL};
    if (r->emulate != NULL)
        return emulate_alloc(&r->alloc, r->emulate, index, err);
    if (r->given != NULL)
        return alloc_copy(&r->alloc, r->given, index) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    int rc = fill_alloc_input(r, &in, err);
    if (rc == 0 && r->o->standalone) { /* whatever the scheduler's variables say */
        in.min_nodes = in.max_nodes = 1;
        in.env = nothing;
        in.master_addr = in.rdzv_endpoint = NULL; /* torchrun ignores them too */
        in.node_rank = -1;
        in.master_port = 0;
    }
    struct outer_peers outer = {0};
    if (rc == 0)
        rc = outer_find(&outer, &in, (unsigned)(r->o->rdzv_timeout / DD_NS_PER_MS), err);
    if (rc > 0)
        in.peers = &outer.peers;
    if (rc >= 0)
        rc = alloc_find(&r->alloc, &in, err);
    dd_strv_done(&outer.texts);
    return rc;
}

/* A simulated node's share of the GPUs, as its CUDA_VISIBLE_DEVICES. */
static int share_gpus(struct run *r, int index, int count, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv ids = {0};
    DD_AUTO(buf) struct dd_buf mine = DD_BUF_INIT(4096);
    const char *visible = dd_env_get(r->env.v, "CUDA_VISIBLE_DEVICES");
    int each = count / r->emulate->nnodes;
    int rc = visible != NULL ? dd_strv_split(&ids, visible, ",") : 0;
    for (int i = 0; visible == NULL && i < count && rc == 0; i++)
        rc = dd_strv_pushf(&ids, "%d", i);
    for (int i = index * each; i < (index + 1) * each && i < (int)ids.n && rc == 0; i++)
        rc = dd_buf_printf(&mine, "%s%s", mine.len > 0 ? "," : "", ids.v[i]);
    const char *text = rc == 0 ? dd_buf_str(&mine) : NULL;
    rc = text == NULL ? -ENOMEM : dd_env_set(&r->env, "CUDA_VISIBLE_DEVICES", text);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

/* That each worker can be put where --numa-binding wants it. */
static int check_numa(const struct run *r, const struct node_cpus *cpus, struct dd_err *err)
{
    const enum node_numa_mode mode = node_numa_mode(r->o->numa_binding);
    DD_AUTO(free) cpu_set_t *set = calloc(1, cpus->size);
    const struct node_numa_query q = {
        .cpus = cpus, .root = "", .env = r->env.v, .mode = mode, .nworkers = r->slots};
    struct node_memory memory;
    int rc = set == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    for (int i = 0; i < r->slots && mode != NODE_NUMA_NONE && rc == 0; i++)
        rc = node_numa_place(&q, i, set, &memory, err);
    return rc;
}

static int count_slots(struct run *r, int index, struct dd_err *err)
{
    struct node_gpus gpus;
    struct node_cpus cpus = {0};
    int rc = node_gpus_count(&gpus, r->env.v, "", err);
    if (rc == 0 && r->emulate != NULL && gpus.count >= r->emulate->nnodes) {
        rc = share_gpus(r, index, gpus.count, err);
        gpus.count /= r->emulate->nnodes;
    }
    if (rc == 0)
        rc = node_cpus_get(&cpus, err);
    if (rc < 0)
        return rc;
    const char *spec = r->o->nproc_per_node;
    if (spec == NULL)
        spec = gpus.count > 0 ? "gpu" : "1";
    rc = horovodrun_nproc(&r->o->horovodrun, r->alloc->index, r->alloc->nnodes, err);
    if (rc == 0)
        rc = node_nproc(spec, &gpus, cpus.count, err);
    r->slots = rc;
    if (rc > 0)
        rc = check_numa(r, &cpus, err);
    node_cpus_done(&cpus);
    if (rc < 0)
        return rc;
    r->gpus = gpus.count;
    return torchrun_check_gpus(r->o, r->env.v, r->slots, err);
}

static int check_preload(const struct ddrun_options *o, struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->preload.n && rc == 0; i++)
        rc = rule_check_preload(o->preload.v[i], err);
    return rc;
}

static int find_program(struct run *r, struct dd_err *err)
{
    const struct program_spec spec = {.argv = r->script,
                                      .module = r->o->module,
                                      .no_python = r->o->no_python,
                                      .run_path = r->o->run_path,
                                      .is_python = r->o->by_torchrun,
                                      .env = r->env.v};
    return program_resolve(&r->program, &spec, err);
}

/* Our other programs lie beside ddrun in the build directory. *ret is where it was looked for last. */
static bool find_ours(char ret[PATH_MAX], const char *name, const char *installed)
{
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - strlen(name) - 1);
    char *slash = NULL;
    if (n > 0) {
        ret[n] = '\0';
        slash = strrchr(ret, '/');
    }
    if (slash != NULL) {
        memcpy(slash + 1, name, strlen(name) + 1);
        if (access(ret, X_OK) == 0)
            return true;
    }
    (void)snprintf(ret, PATH_MAX, "%s/%s", installed, name);
    return access(ret, X_OK) == 0;
}

static int find_ddrund(struct run *r, struct dd_err *err)
{
    return find_ours(r->ddrund, "ddrund", BINDIR)
               ? 0
               : dd_err_set(err, -ENOENT, "cannot find ddrund, neither beside ddrun nor as %s", r->ddrund);
}

/* With --mpi=auto it need not be there. */
static int find_pmix(struct run *r, struct dd_err *err)
{
    bool wanted = strcmp(r->o->mpi, "pmix") == 0;
    if (!wanted && strcmp(r->o->mpi, "auto") != 0)
        return 0;
    if (find_ours(r->pmix_helper, "ddrun-pmix", PKGLIBEXECDIR))
        return r->mpi_place.tmp != NULL ? 0 : pmi_place_new(&r->mpi_place, dd_env_get_nonempty(r->env.v, "TMPDIR"), err);
    if (wanted)
        return dd_err_set(err, -ENOENT, "--mpi=pmix needs ddrun-pmix, which is neither beside ddrun nor %s: was ddrun built with libpmix?",
                          r->pmix_helper);
    r->pmix_helper[0] = '\0';
    return 0;
}

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
           : strcmp(how, "auto") == 0 ? AGENT_MPI_PMI1 | (r->pmix_helper[0] != '\0' ? AGENT_MPI_PMIX : 0)
                                      : 0;
}

static bool is_tf(const struct ddrun_options *o)
{
    return o->tf || (o->frameworks & FRAMEWORK_TF) != 0;
}

static void fill_agent(struct run *r)
{
    const struct ddrun_options *o = r->o;
    r->agent = (struct agent_cfg){
        .alloc = r->alloc,
        .node_name = node_name(r),
        .env = r->env.v,
        .program = &r->program,
        .slots = r->slots,
        .rdzv = rdzv_cfg(r),
        .heartbeat_ns = o->heartbeat,
        .rdzv_timeout_ns = o->rdzv_timeout,
        .grace_ms = (unsigned)(o->shutdown_timeout / DD_NS_PER_MS),
        .before_end = {.sig = o->signal_before_end.sig, .ns = o->signal_before_end.ns},
        .requeue_on = o->requeue_on,
        .stdin_rank = o->stdin_rank,
        .pty_rank = o->pty,
        .terminal = &r->terminal,
        .hang = {.timeout_ns = o->hang_timeout, .signs = hang_signs(o->hang_sign), .command = o->on_hang},
        .output = {.log_dir = o->log_dir,
                   .redirects = o->redirects,
                   .tee = o->tee,
                   .local_ranks_filter = o->local_ranks_filter,
                   .filters = {o->stdout_filters, o->stderr_filters},
                   .prefix = dd_env_get_nonempty(r->env.v, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
                   .tmp_dir = dd_env_get_nonempty(r->env.v, "TMPDIR"),
                   .log = &r->log,
                   .role = o->role,
                   .watch = o->hang_timeout > 0 && (hang_signs(o->hang_sign) & HANG_SIGN_OUTPUT) != 0,
                   .label = o->label},
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
        .env_rules = o->env.v,
        .wrap_rules = o->wrap.v,
        .preload_rules = o->preload.v,
        .frameworks = o->frameworks | (o->tf ? FRAMEWORK_TF : 0),
        .tf_roles = o->tf_roles.n > 0 ? &o->tf_roles : NULL,
        .mpi = mpi_of(r),
        .pmix_helper = r->pmix_helper,
        .mpi_place = &r->mpi_place,
        .bind_cpus = strcmp(o->bind, "auto") == 0,
        .numa = node_numa_mode(o->numa_binding),
        .source_addr = r->source_addr[0] != '\0' ? r->source_addr : NULL,
        .listen_addr = r->source_addr[0] != '\0' ? r->source_addr : NULL,
        /* one machine needs no network, and simulated nodes have theirs */
        .iface = r->alloc->nnodes > 1 && r->emulate == NULL ? o->iface : NULL,
        .key_in = {.env = r->env.v,
                   .key_file = o->key_file,
                   .psk = r->alloc->psk,
                   .munge_socket = o->munge_socket,
                   .job_id = r->alloc->job_id,
                   .insecure = o->insecure},
        .ddrund = r->ddrund,
        .log = &r->log,
        .start_ns = r->start_ns,
    };
    if (r->alloc->nnodes == 1 && r->agent.listen_addr == NULL)
        r->agent.listen_addr = only_here(o->local_addr);
    if (r->alloc->nnodes > 1)
        (void)snprintf(r->log.who, sizeof(r->log.who), "ddrun[%.60s]", r->agent.node_name);
}

static int look_around(struct run *r, struct dd_err *err)
{
    if (gethostname(r->hostname, sizeof(r->hostname) - 1) < 0)
        return dd_err_set(err, -errno, "cannot get this host's name: %m");
    int rc = dd_strv_copy(&r->env, environ);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : cmd_local_addrs(&r->local_addrs, err);
}

static int prepare(struct run *r, int index, struct dd_err *err)
{
    if (r->emulate != NULL)
        emulate_addr(r->emulate, index, r->source_addr);
    int rc = look_around(r, err);
    if (rc == 0)
        rc = find_ddrund(r, err);
    if (rc == 0)
        rc = find_pmix(r, err);
    if (rc == 0)
        rc = find_alloc(r, index, err);
    for (size_t i = 0; rc == 0 && i < r->alloc->warnings.n; i++)
        dd_log(&r->log, DD_LOG_WARN, "%s", r->alloc->warnings.v[i]);
    if (rc < 0)
        return rc;
    rc = check_iface(r->o->iface, err);
    if (rc == 0 && r->alloc->index <= 0) /* the others write it only when the first node is lost */
        rc = check_report(r->o->report, err);
    if (rc == 0)
        rc = count_slots(r, index, err);
    if (rc == 0)
        rc = find_program(r, err);
    if (rc == 0)
        rc = check_preload(r->o, err);
    fill_agent(r);
    return rc;
}

static int run_agent(void *arg)
{
    struct run *r = arg;
    r->log.waits_ms = LOG_WAIT_MS;
    int code = agent_run(&r->agent);
    error_files_remove(r->error_prefix, r->slots); /* the guardian may have been killed */
    run_done(r);
    return code;
}

static int dry_run(struct run *r, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    int rc = agent_dry_run(&out, &r->agent, r->emulate != NULL, err);
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, out.data, out.len);
    if (rc < 0 && err->text[0] == '\0')
        (void)dd_err_set(err, rc, "cannot write to standard output: %s", strerror(-rc));
    return rc;
}

/* Of this node, or of all the simulated ones. */
static int dry_run_all(struct run *r)
{
    const int n = r->emulate != NULL ? r->emulate->nnodes : 1;
    struct dd_err err = {0};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = prepare(r, r->emulate != NULL ? i : -1, &err);
        if (rc == 0)
            rc = dry_run(r, &err);
        run_done(r);
    }
    if (rc < 0)
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
    return rc < 0 ? EXIT_USAGE : 0;
}

/* The whole of one node; a simulated one is run in a process of its own. */
static int run_node(void *arg, int index)
{
    struct run *r = arg;
    struct dd_err err = {0};
    bool ready = prepare(r, index, &err) == 0;
    if (!ready && (r->alloc == NULL || r->alloc->nnodes == 1)) {
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
        run_done(r);
        return EXIT_USAGE;
    }
    if (!ready) { /* the other nodes must not wait for this one */
        r->agent.cannot = err.text;
        r->agent.slots = 1;
        r->agent.iface = NULL; /* may be what is wrong */
    }
    const struct guardian_cfg guardian = {
        .grace_ms = r->agent.grace_ms + GUARDIAN_EXTRA_MS, .terminal = &r->terminal, .log = &r->log};
    if (ready && (r->o->log_dir == NULL || *r->o->log_dir == '\0'))
        r->agent.error_prefix = r->error_prefix = error_files_prefix(dd_env_get_nonempty(r->env.v, "TMPDIR"));
    int code = guardian_run(run_agent, r, &guardian);
    error_files_remove(r->error_prefix, r->slots);
    (void)pmi_place_remove(&r->mpi_place);
    run_done(r);
    return torchrun_exit_code(r->o, code);
}

static int run_simulated(struct run *r)
{
    const struct ddrun_options *o = r->o;
    struct emulate e = {.nnodes = o->simulate_nodes,
                        .go_on = o->nnodes.range || o->max_restarts.most > 0};
    if (getrandom(&e.random, sizeof(e.random), 0) < 0 ||
        getrandom(e.secret, sizeof(e.secret), 0) < 0) {
        dd_log(&r->log, DD_LOG_ERR, "no random numbers: %m");
        return 1;
    }
    r->emulate = &e;
    if (o->dry_run)
        return dry_run_all(r);
    struct dd_err err = {0};
    int rc = prepare(r, 0, &err); /* what is wrong for one is wrong for all: said once */
    run_done(r);
    if (rc < 0) {
        dd_log(&r->log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    (void)snprintf(r->log.who, sizeof(r->log.who), "ddrun");
    return emulate_run(&e, run_node, r, &r->log);
}

static int run_launched(void *arg, const struct alloc *a, int index)
{
    struct run *r = arg;
    r->given = a;
    return run_node(r, index);
}

/* Starts the other nodes' agents where nobody has. -1: there is nothing to start. */
static int run_everywhere(struct run *r, char **argv)
{
    struct alloc_input in;
    struct dd_err err = {0};
    int code = -1;
    if (r->o->standalone)
        return -1;
    if (look_around(r, &err) == 0 && fill_alloc_input(r, &in, &err) == 0)
        code = launch_job(&(struct launch_input){
            .o = r->o, .argv = argv, .in = &in, .log = &r->log, .node = run_launched, .arg = r});
    run_done(r);
    return code;
}

/* What is about a number of nodes that may change. */
static void warn_of_fixed_size(const struct ddrun_options *o, const struct opt_table *t,
                               const struct opt_result *res, const struct dd_log *log)
{
    static const char *const names[] = {"grow", "last-call"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && cmd_speaks(environ); i++) {
        const struct opt_source *src = opt_result_source(res, t, names[i]);
        if (!o->nnodes.range && src != NULL && src->from == OPT_FROM_COMMAND_LINE)
            dd_log(log, DD_LOG_WARN, "--%s has no effect without --nnodes=MIN:MAX", names[i]);
    }
}

int main(int argc, char **argv)
{
    struct ddrun_options o = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(package) struct package package = {0};
    int index = -1;
    uint64_t start_ns = dd_now_ns();
    cmd_begin();
    if (argc == 2 && strncmp(argv[1], "--launched=", 11) == 0) {
        int code = launch_join(&package, &index, argv[1] + 11);
        if (code >= 0)
            return code;
        argc = (int)package.argv.n;
        argv = package.argv.v;
    }
    const bool by_torchrun = torchrun_is_name(argv[0]);
    DD_AUTO(horovodrun) struct horovodrun *hvd = &o.horovodrun;
    struct opt_table table = ddrun_options;
    if (by_torchrun)
        table.program = "torchrun";
    if (horovodrun_is_name(argv[0]))
        table.program = "horovodrun";
    int code = cmd_options(&table, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    torchrun_apply(&o, &table, &res, by_torchrun);
    struct run r = {.o = &o, .start_ns = start_ns, .log = {.fd = STDERR_FILENO, .who = "ddrun"}};
    r.given = package.alloc;
    r.log.level = cmd_log_level(o.log_level);
    cmd_warn_of_misspelt(&table, &r.log);
    if (r.given == NULL) { /* else it was said by who started us */
        cmd_warn_of_idle(&table, &res, &r.log);
        warn_of_fixed_size(&o, &table, &res, &r.log);
    }
    if (cmd_speaks(environ))
        torchrun_tell(&o, &r.log);
    struct dd_err err = {0};
    int rc = horovodrun_apply(hvd, &o, &err);
    if (rc == 0)
        rc = check_options(&o, &err);
    if (rc == 0)
        rc = check_rules(&o, &err);
    if (rc == 0 && o.tf_roles.n > 0 && !is_tf(&o))
        rc = dd_err_set(&err, -EINVAL, "--roles is for TensorFlow; write --tf as well");
    if (res.script >= argc)
        rc = dd_err_set(&err, -EINVAL, "no SCRIPT was given; write for example: ddrun --nproc-per-node=2 train.py");
    if (rc < 0) {
        if (cmd_speaks(environ))
            dd_log(&r.log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    DD_AUTO(strv) struct dd_strv script = {0};
    if (dd_strv_push(&script, argv[res.script]) < 0 || dd_strv_copy(&script, argv + res.args) < 0)
        return 1;
    r.script = script.v;
    if (o.dry_run && o.simulate_nodes == 0)
        return dry_run_all(&r);
    terminal_save(&r.terminal);
    if (o.simulate_nodes > 0)
        return run_simulated(&r);
    code = r.given == NULL ? run_everywhere(&r, argv) : -1;
    return code >= 0 ? code : run_node(&r, index);
}
