/* One round on this node: from the plan to running workers, from their ends to messages. */
#include "agent/inner.h"
#include "agent/spec.h"

#include "base/io.h"
#include "net/addr.h"
#include "node/cpu.h"
#include "rdzv/ports.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    IFACE_MS =
        1500, /* below the heartbeat: for a connection through the interface that was asked for */
};

static int plan_of_msg(struct plan *ret, const struct msg_plan *m, bool workers, struct dd_err *err)
{
    DD_AUTO(plan) struct plan p = {.round = m->round,
                                   .node_rank = m->node_rank,
                                   .restart_count = m->restart_count,
                                   .max_restarts = m->max_restarts,
                                   .master_port = (uint16_t)m->master_port,
                                   .master_addr = strdup(m->addr),
                                   .token = strdup(m->token),
                                   .nodes = strdup(m->nodes)};
    int rc = plan_sizes_parse(&p.sizes, &p.nnodes, m->sizes, err);
    if (rc < 0)
        return rc;
    if (p.master_addr == NULL || p.nodes == NULL || p.token == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (p.node_rank >= p.nnodes)
        return dd_err_set(err, -EPROTO, "node rank %d of %d nodes", p.node_rank, p.nnodes);
    for (int i = 0; i < p.nnodes; i++)
        p.world_size += p.sizes[i];
    p.local_size = p.sizes[p.node_rank];
    p.first_rank = plan_first_rank(p.sizes, p.node_rank);
    rc = ports_coordinator(&p.coordinator, m->ports, p.master_addr, err);
    if (rc == 0 && workers)
        rc = ports_workers(&p.endpoints, m->ports, p.master_addr, &p, err);
    if (rc < 0)
        return rc;
    *ret = p;
    p = (struct plan){0};
    return 0;
}

struct ifaces {
    char used[16]; /* the interface that reaches the daemon, "" when not known */
    char nccl[16]; /* the same, when NCCL would take another one by itself, else "" */
};

/* A guest used the local end of its link; for the host the address that others reach is its own. */
static void find_ifaces(const struct agent *a, struct ifaces *ret)
{
    struct net_addr addr = *link_local(a->link);
    struct net_iface *ifs = NULL;
    size_t n = 0;
    char choice[16];
    memset(ret, 0, sizeof(*ret));
    if (addr.len == 0 && net_addr_parse(&addr, a->plan.master_addr, 0) < 0)
        return;
    /* all of 127/8 is lo's, though only 127.0.0.1 is listed */
    if (a->cfg->iface != NULL)
        (void)snprintf(ret->used, sizeof(ret->used), "%s", a->cfg->iface);
    else if (net_addr_is_loopback(&addr))
        memcpy(ret->used, "lo", 3);
    else if (net_iface_of(&addr, ret->used) < 0)
        ret->used[0] = '\0';
    if (ret->used[0] != '\0' && a->plan.nnodes > 1 && net_ifaces(&ifs, &n, NULL) == 0 &&
        net_iface_nccl_choice(ifs, n, choice) == 0 && strcmp(choice, ret->used) != 0)
        memcpy(ret->nccl, ret->used, sizeof(ret->nccl));
    free(ifs);
}

struct launch {
    struct worker_spec *specs;
    int n;
    struct node_cpus cpus;
    cpu_set_t **shares;         /* one per worker, NULL: unbound */
    struct node_memory *memory; /* one per worker, with --numa-binding */
};

static void launch_done(struct launch *l)
{
    for (int i = 0; i < l->n; i++) {
        dd_strv_done(&l->specs[i].argv);
        dd_strv_done(&l->specs[i].env);
        if (l->shares != NULL)
            free(l->shares[i]);
    }
    free(l->specs);
    free(l->shares);
    free(l->memory);
    node_cpus_done(&l->cpus);
}

/* 0, 1: leave it unbound, or < 0. */
static int place_worker(const struct agent *a, struct launch *l, int i, cpu_set_t *set,
                        struct dd_err *err)
{
    if (a->cfg->numa == NODE_NUMA_NONE)
        return node_cpus_share(&l->cpus, "", i, l->n, set);
    l->specs[i].memory = l->memory[i].mask;
    l->specs[i].memory_bits = NODE_NUMA_MAX;
    const struct node_numa_query q = {
        .cpus = &l->cpus, .root = "", .env = a->cfg->env, .mode = a->cfg->numa, .nworkers = l->n};
    return node_numa_place(&q, i, set, &l->memory[i], err);
}

static int share_cpus(struct agent *a, struct launch *l, struct dd_err *err)
{
    int rc = node_cpus_get(&l->cpus, err);
    if (rc < 0)
        return rc;
    if (a->plan.round == 0 && node_cpus_bound_by_accident(&l->cpus, l->n))
        dd_log(
            a->cfg->log, DD_LOG_WARN,
            "this node's ddrun may use only %d of %d CPUs for %d workers; was it bound by accident? "
            "(srun --cpu-bind=none, mpiexec --cpu-bind none, or ask for more CPUs per task)",
            l->cpus.count, l->cpus.online, l->n);
    if (!a->cfg->bind_cpus && a->cfg->numa == NODE_NUMA_NONE)
        return 0;
    l->memory = calloc((size_t)l->n, sizeof(*l->memory));
    for (int i = 0; i < l->n; i++) {
        cpu_set_t *set = calloc(1, l->cpus.size);
        if (set == NULL || l->memory == NULL) {
            free(set);
            return dd_err_set(err, -ENOMEM, "out of memory");
        }
        l->shares[i] = set;
        rc = place_worker(a, l, i, set, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        l->specs[i].cpus = set;
        l->specs[i].cpus_size = l->cpus.size;
    }
    return 0;
}

static bool hides_terminal(const struct agent *a, int local_rank)
{
    return a->output != NULL && a->plan.first_rank + local_rank != a->cfg->pty_rank &&
           worker_output_hides_terminal(a->output, local_rank);
}

static int fill_spec(struct agent *a, struct worker_spec *spec, int local_rank,
                     const struct ifaces *ifs, struct dd_err *err)
{
    const struct spec_input in = {.cfg = a->cfg,
                                  .plan = &a->plan,
                                  .local_rank = local_rank,
                                  .iface = ifs->used[0] != '\0' ? ifs->used : NULL,
                                  .nccl_iface = ifs->nccl[0] != '\0' ? ifs->nccl : NULL,
                                  .error_file = error_files_path(a->errors, local_rank),
                                  .unbuffered = hides_terminal(a, local_rank),
                                  .horovod_port = horovod_port(a)};
    spec->rank = a->plan.first_rank + local_rank;
    spec->folder = a->cfg->folder;
    int rc = spec_make(&spec->argv, &spec->env, &in, err);
    if (rc == 0 && (mpi_spec(a, local_rank, spec) < 0 || hang_spec(a, local_rank, spec) < 0))
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    return rc;
}

/* A rank that there is not would wait for nobody's input. A job that changes its size may have it
 * later. */
static int check_ranks(const struct agent *a, struct dd_err *err)
{
    const struct rdzv_cfg *c = &a->cfg->rdzv;
    int pty = a->cfg->pty_rank;
    int rank = pty >= 0 ? pty : a->cfg->stdin_rank;
    if (rank < a->plan.world_size || rank == STDIN_ALL || c->min_nodes != c->max_nodes)
        return 0;
    return dd_err_set(err, -ENOTSUP, "--%s=%d: there are only ranks 0 to %d",
                      pty >= 0 ? "pty" : "stdin", rank, a->plan.world_size - 1);
}

/* One rank may have a terminal, and then stdin belongs to it. */
static int share_stdin(struct agent *a, struct launch *l, struct dd_err *err)
{
    bool ours = !terminal_in_background();
    int pty = a->cfg->pty_rank;
    for (int i = 0; i < l->n; i++) {
        int rank = l->specs[i].rank;
        l->specs[i].has_stdin = ours && pty < 0 &&
                                (rank == a->cfg->stdin_rank || a->cfg->stdin_rank == STDIN_ALL);
    }
    pty_free(a->pty);
    a->pty = NULL;
    int local = pty - a->plan.first_rank;
    if (pty < 0 || local < 0 || local >= l->n)
        return 0;
    int rc = pty_new(&a->pty, a->base, a->cfg->terminal, a->plan.world_size == 1, a->cfg->log, err);
    if (rc < 0)
        return rc;
    l->specs[local].tty = pty_path(a->pty);
    pty_keep_tail(a->pty, a->output, local);
    return 0;
}

static void end_pty(struct agent *a)
{
    pty_free(a->pty);
    a->pty = NULL;
}

static int begin_output(struct agent *a, struct dd_err *err)
{
    if (a->output == NULL)
        return 0;
    DD_AUTO(free) int *ranks = calloc((size_t)a->plan.local_size, sizeof(*ranks));
    if (ranks == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < a->plan.local_size; i++)
        ranks[i] = a->plan.first_rank + i;
    return worker_output_begin(a->output, a->plan.round, ranks, a->plan.local_size,
                               a->plan.world_size == 1, err);
}

static void on_worker_exit(void *arg, const struct worker_exit *e)
{
    struct agent *a = arg;
    dd_log(a->cfg->log, DD_LOG_DEBUG, "event=exit rank=%d pid=%d code=%d signal=%d",
           a->plan.first_rank + e->local_rank, (int)e->pid, e->code, e->signal);
    struct worker_exit end = *e;
    if (a->plan.first_rank + e->local_rank == a->cfg->pty_rank)
        end_pty(a); /* now, so that Ctrl-C is ddrun's again */
    if (end.code == 0 && hang_ended(a, e->local_rank))
        end.code = 128 + SIGABRT; /* it caught the signal, and took it for a good end */
    mpi_ended(a, &end);
    if (end.code != 0 && !signals_settling(a))
        error_files_keep(a->errors, &end);
    if (end.code != 0 && a->ends.stop_sig == 0)
        ports_check(a);
    enough_worker(a, &end);
    a->memory.ended_well &= end.code == 0;
    ends_worker(a, &end);
}

static void on_workers_gone(void *arg)
{
    struct agent *a = arg;
    hang_over(a);
    warning_over(a);
    exchanges_free(a);
    mpi_over(a);
    worker_group_free(a->group);
    a->group = NULL;
    horovod_end(a);
    ports_renew(a);
    if (a->state == AGENT_ALONE) {
        agent_leave(a, a->code);
        return;
    }
    if (a->state == AGENT_ORPHAN) {
        succession_begin(a, true);
        return;
    }
    a->state = AGENT_IDLE;
    a->done_held = signals_settling(a);
    if (!a->done_held)
        ends_all(a, a->plan.round);
}

void round_settled(struct agent *a)
{
    if (a->done_held)
        ends_all(a, a->plan.round);
    a->done_held = false;
}

static int launch(struct agent *a, struct dd_err *err)
{
    const struct worker_group_cb cb = {
        .log = a->cfg->log, .on_exit = on_worker_exit, .on_empty = on_workers_gone, .arg = a};
    struct launch l = {.n = a->plan.local_size};
    struct ifaces ifs;
    find_ifaces(a, &ifs);
    horovod_begin(a);
    l.specs = calloc((size_t)l.n, sizeof(*l.specs));
    l.shares = calloc((size_t)l.n, sizeof(*l.shares));
    int rc = l.specs == NULL || l.shares == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    if (rc < 0)
        l.n = 0;
    if (rc == 0)
        rc = check_ranks(a, err);
    if (rc == 0)
        rc = begin_output(a, err);
    if (rc == 0)
        rc = error_files_begin(&a->errors, l.n, a->output, a->cfg, err);
    if (rc == 0)
        ends_begin(a);
    if (rc == 0)
        rc = hang_prepare(a, err);
    if (rc == 0)
        rc = mpi_prepare(a, err);
    for (int i = 0; i < l.n && rc == 0; i++)
        rc = fill_spec(a, &l.specs[i], i, &ifs, err);
    if (rc == 0)
        rc = share_cpus(a, &l, err);
    if (rc == 0)
        rc = share_stdin(a, &l, err);
    if (rc == 0)
        rc = worker_group_start(&a->group, a->base, l.specs, l.n, a->output, &cb, err);
    if (rc == 0)
        mpi_started(a);
    else
        mpi_over(a);
    if (rc == 0 && a->host.daemon > 0)
        worker_group_protect(a->group, a->host.daemon);
    if (rc == 0)
        rc = hang_begin(a, err);
    if (rc == 0 && a->pty != NULL)
        rc = pty_begin(a->pty, err);
    if (rc < 0)
        end_pty(a);
    launch_done(&l);
    return rc;
}

/* With --iface the address is the host's word: the link may use another network. Asked once. */
static int check_iface(const struct agent *a, struct dd_err *err)
{
    const struct plan *p = &a->plan;
    struct net_addr to;
    if (a->cfg->iface == NULL || p->restart_count > 0 || a->cfg->alloc->index == 0)
        return 0;
    int rc = net_addr_parse(&to, p->master_addr, p->master_port);
    if (rc == 0 && net_addr_is_loopback(&to) && !net_addr_is_loopback(link_peer(a->link)))
        return dd_err_set(err, -EINVAL,
                          "--iface=%s was said here but not on the first node; say it on all nodes",
                          a->cfg->iface);
    if (rc == 0)
        rc = net_iface_reaches(a->cfg->iface, &to, IFACE_MS);
    return rc == 0
               ? 0
               : dd_err_set(err, rc,
                            "--iface=%s: %s does not reach the first node's address there, %s: %s",
                            a->cfg->iface, a->cfg->node_name, p->master_addr, strerror(-rc));
}

int round_start(struct agent *a, const struct msg_plan *m)
{
    struct dd_err err = {0};
    horovod_end(a); /* it uses the plan */
    plan_clear(&a->plan);
    a->enough_left = -1;
    int rc = plan_of_msg(&a->plan, m, framework_wants_ports(a->cfg->frameworks), &err);
    if (rc == 0)
        rc = check_iface(a, &err);
    if (rc == 0)
        rc = memory_take(a, m, &err);
    if (rc == 0)
        rc = launch(a, &err);
    a->memory.ended_well = rc == 0;
    if (rc == 0) {
        a->state = AGENT_RUNNING;
        dd_log(a->cfg->log, DD_LOG_INFO, "started %d worker%s (ranks %d-%d of %d) in %.1f ms",
               a->plan.local_size, a->plan.local_size == 1 ? "" : "s", a->plan.first_rank,
               a->plan.first_rank + a->plan.local_size - 1, a->plan.world_size,
               (double)(dd_now_ns() - a->cfg->start_ns) / 1e6);
        agent_send(a, MSG(STARTED, .round = a->plan.round));
        enough_begin(a);
        endtime_round(a);
        return 0;
    }
    dd_log(a->cfg->log, a->link != NULL ? DD_LOG_INFO : DD_LOG_ERR, "%s",
           err.text); /* the report has it */
    a->state = AGENT_IDLE;
    if (rc == -ENOTSUP) { /* nor can it on another try */
        agent_send(a, MSG(STOP_REQUEST, .text = err.text));
        a->ends = (struct ends){.failed = 1};
        ends_all(a, m->round);
        return rc;
    }
    ends_failed(a, m->round, rc == -ENOENT ? 127 : 126, err.text);
    return rc;
}

void round_stop(struct agent *a, int sig, unsigned grace_ms)
{
    error_files_over(a->errors);
    hang_over(a);
    if (a->group == NULL)
        return;
    a->memory.ended_well = false;
    a->ends.stop_sig = sig;
    worker_group_stop(a->group, sig, grace_ms);
}

void round_free(struct agent *a)
{
    error_files_free(a->errors);
    hang_over(a);
    warning_over(a);
    exchanges_free(a);
    worker_group_free(a->group);
    mpi_over(a);
    end_pty(a);
    worker_output_free(a->output);
    horovod_end(a);
    plan_clear(&a->plan);
    memory_free(a);
}
