#include "agent/round_specs.h"

#include "agent/features.h"
#include "agent/agent.h"
#include "agent/spec.h"
#include "net/addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Find the interfaces of this node in the workers' network, by the address of the link's local end;
 * on the leader, whose link is local, by the address that other nodes reach. */
static void find_ifaces(const struct round *r, const struct net_addr *local,
                        struct net_worker_ifaces *ret)
{
    struct net_addr addr = *local;
    memset(ret, 0, sizeof(*ret));
    if (addr.len != 0 || net_addr_parse(&addr, r->plan.master_addr, 0) == 0)
        net_worker_ifaces_find(ret, r->cfg->iface, &addr, r->plan.nnodes == 1);
}

/* Returns 0, 1 if the workers stay unbound, or < 0. */
static int place_worker(const struct round *r, struct round_specs *l, int i, cpu_set_t *set,
                        struct dd_err *err)
{
    if (r->cfg->bind.numa == NODE_NUMA_NONE)
        return node_cpus_share(&l->cpus, "", i, l->n, set);
    l->v[i].memory = l->memory[i].mask;
    l->v[i].memory_bits = NODE_NUMA_MAX;
    const struct node_numa_query q = {.cpus = &l->cpus,
                                      .root = "",
                                      .env = r->cfg->env,
                                      .mode = r->cfg->bind.numa,
                                      .nworkers = l->n};
    return node_numa_place(&q, i, set, &l->memory[i], err);
}

static int share_cpus(const struct round *r, struct round_specs *l, struct dd_err *err)
{
    int rc = node_cpus_get(&l->cpus, err);
    if (rc < 0)
        return rc;
    if (r->plan.round == 0 && node_cpus_bound_by_accident(&l->cpus, l->n))
        dd_log(r->cfg->log, DD_LOG_WARN,
               "ddrun may use only %d of this node's %d CPUs for %d workers"
               "\n  tip: if a launcher has bound ddrun, use srun --cpu-bind=none or mpiexec "
               "--cpu-bind none; otherwise request more CPUs per task",
               l->cpus.count, l->cpus.online, l->n);
    if (!r->cfg->bind.cpus && r->cfg->bind.numa == NODE_NUMA_NONE)
        return 0;
    l->memory = calloc((size_t)l->n, sizeof(*l->memory));
    for (int i = 0; i < l->n; i++) {
        cpu_set_t *set = calloc(1, l->cpus.size);
        if (set == NULL || l->memory == NULL) {
            free(set);
            return dd_err_set(err, -ENOMEM, "out of memory");
        }
        l->shares[i] = set;
        rc = place_worker(r, l, i, set, err);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        l->v[i].cpus = set;
        l->v[i].cpus_size = l->cpus.size;
    }
    return 0;
}

static bool hides_terminal(const struct round *r, int local_rank)
{
    return r->output != NULL && r->plan.first_rank + local_rank != r->cfg->pty_rank &&
           worker_output_hides_terminal(r->output, local_rank);
}

static int fill_spec(const struct round *r, struct worker_spec *spec, int local_rank,
                     const struct net_worker_ifaces *ifs, struct dd_err *err)
{
    struct spec_input in = {.cfg = r->cfg,
                            .plan = &r->plan,
                            .local_rank = local_rank,
                            .iface = ifs->used[0] != '\0' ? ifs->used : NULL,
                            .nccl_iface = ifs->nccl[0] != '\0' ? ifs->nccl : NULL,
                            .error_file = "",
                            .unbuffered = hides_terminal(r, local_rank)};
    features_spec_input(r->features, r, &in);
    spec->rank = r->plan.first_rank + local_rank;
    spec->directory = r->cfg->directory;
    spec->tracer = r->cfg->stacks.mode != STACKS_OFF ? getpid() : 0;
    int rc = spec_make(&spec->argv, &spec->env, &in, err);
    if (rc == 0 && features_worker_env(r->features, r, local_rank, spec) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    return rc;
}

/* With --pty, only the rank on the pseudo-terminal reads stdin. */
static void share_stdin(const struct round *r, struct round_specs *l)
{
    bool ours = !terminal_in_background() && r->cfg->pty_rank < 0;
    int wanted = r->cfg->stdin_rank;
    for (int i = 0; i < l->n; i++)
        l->v[i].has_stdin = ours && (l->v[i].rank == wanted || wanted == STDIN_ALL);
}

int round_specs_make(struct round_specs *ret, const struct round *r, const struct round_link *link,
                     struct dd_err *err)
{
    struct net_worker_ifaces ifs;
    ret->v = calloc((size_t)r->plan.local_size, sizeof(*ret->v));
    ret->shares = calloc((size_t)r->plan.local_size, sizeof(*ret->shares));
    if (ret->v == NULL || ret->shares == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    ret->n = r->plan.local_size;
    find_ifaces(r, link->local, &ifs);
    int rc = 0;
    for (int i = 0; i < ret->n && rc == 0; i++)
        rc = fill_spec(r, &ret->v[i], i, &ifs, err);
    if (rc == 0)
        rc = share_cpus(r, ret, err);
    if (rc == 0)
        share_stdin(r, ret);
    return rc;
}

void round_specs_done(struct round_specs *l)
{
    for (int i = 0; i < l->n; i++) {
        dd_strv_done(&l->v[i].argv);
        dd_strv_done(&l->v[i].env);
        if (l->shares != NULL)
            free(l->shares[i]);
    }
    free(l->v);
    free(l->shares);
    free(l->memory);
    node_cpus_done(&l->cpus);
}
