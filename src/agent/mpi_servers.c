#include "agent/mpi_servers.h"

#include "agent/agent.h"
#include "agent/node_exchange.h"
#include "base/auto.h"
#include "node/cpu.h"
#include "pmi/pmi1.h"
#include "pmi/pmix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

enum {
    ABORT_WAIT_MS = 500
}; /* a rank that calls MPI_Abort may wait to be killed (MPICH 4.0 does) */

enum { WHY_MAX = 64 };

struct mpi;

/* An exchange of this node that waits for the parts of other nodes. */
struct gather {
    LIST_ENTRY(gather) entry;
    struct mpi *mpi;
    uint32_t id; /* id of the request of ddrun-pmix */
};

struct mpi {
    const struct round *round;
    struct pmi1 *pmi1;
    struct pmix *pmix; /* NULL: PMIx is not offered */
    bool crowded;      /* more workers than CPUs */
    int n;
    int *fds;             /* PMI_FD of each worker */
    char (*why)[WHY_MAX]; /* [workers] why each failed under MPI; "": MPI is not the reason */
    LIST_HEAD(, gather) gathers;
};

/* The server has failed and ranks would wait forever: end the first rank of this node, which ends
 * the round. */
static void fail_server(struct mpi *m, const char *why)
{
    dd_log(m->round->cfg->log, DD_LOG_ERR, "MPI: %s", why);
    (void)snprintf(m->why[0], WHY_MAX,
                   "ddrun's MPI server failed (see the log of ddrun on its node)");
    if (m->round->group != NULL)
        worker_group_end(m->round->group, 0, SIGTERM, ABORT_WAIT_MS);
}

/* ---- PMI-1 ---- */

static void on_all_parts(void *arg, const struct exchange_part *parts, int n)
{
    struct mpi *m = arg;
    struct dd_err err = {0};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (i != m->round->plan.node_rank)
            rc = pmi1_take(m->pmi1, parts[i].data, parts[i].len, &err);
    if (rc < 0)
        fail_server(m, err.text);
    else
        pmi1_release(m->pmi1);
}

static void mpi_servers_on_barrier(void *arg, unsigned seq, const void *part, size_t len)
{
    struct mpi *m = arg;
    struct dd_err err = {0};
    char name[32];
    if (m->round->plan.nnodes == 1) {
        pmi1_release(m->pmi1);
        return;
    }
    (void)snprintf(name, sizeof(name), "pmi1.%u", seq);
    if (node_exchange_begin(m->round, name, &(struct exchange_part){part, len}, on_all_parts, m,
                            &err) < 0)
        fail_server(m, err.text);
}

static void mpi_servers_on_abort(void *arg, int local_rank)
{
    struct mpi *m = arg;
    if (m->round->group != NULL)
        worker_group_end(m->round->group, local_rank, SIGTERM, ABORT_WAIT_MS);
}

static int start_pmi1(const struct round *r, struct mpi *m, struct dd_err *err)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "ddrun.%d", r->plan.round);
    const struct pmi1_cfg cfg = {
        .base = r->base,
        .log = r->cfg->log,
        /* without an answer MPICH would start each rank as a world of one */
        .refusal = (r->cfg->mpi.protocols & MPI_SERVERS_PMI1) != 0
                       ? NULL
                       : "it uses PMI-1, which --mpi=pmix does not serve\n  tip: use --mpi=auto",
        .kvsname = name,
        .first_rank = r->plan.first_rank,
        .local_size = r->plan.local_size,
        .world_size = r->plan.world_size,
        .sizes = r->plan.sizes,
        .nnodes = r->plan.nnodes,
        .on_barrier = mpi_servers_on_barrier,
        .on_abort = mpi_servers_on_abort,
        .arg = m,
    };
    int rc = pmi1_new(&m->pmi1, &cfg, err);
    for (int i = 0; i < m->n && rc == 0; i++)
        m->fds[i] = pmi1_fd(m->pmi1, i);
    return rc;
}

/* ---- PMIx ---- */

static struct gather *gather_new(struct mpi *m, uint32_t id)
{
    struct gather *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->mpi = m;
    g->id = id;
    LIST_INSERT_HEAD(&m->gathers, g, entry);
    return g;
}

static void gather_forget(struct gather *g)
{
    if (g != NULL)
        LIST_REMOVE(g, entry);
    free(g);
}

/* libpmix takes the concatenated parts, in any order. */
static void mpi_servers_on_gathered(void *arg, const struct exchange_part *parts, int n)
{
    struct gather *g = arg;
    DD_AUTO(buf) struct dd_buf all = DD_BUF_INIT(EXCHANGE_MAX);
    int rc = dd_buf_reserve(&all, 1);
    for (int i = 0; i < n && rc == 0; i++)
        if (parts[i].len > 0)
            rc = dd_buf_append(&all, parts[i].data, parts[i].len);
    pmix_gathered(g->mpi->pmix, g->id, rc == 0 ? all.data : NULL, all.len);
    gather_forget(g);
}

static void mpi_servers_on_gather(void *arg, uint32_t id, const char *name, const void *part,
                                  size_t len)
{
    struct mpi *m = arg;
    struct dd_err err = {0};
    struct gather *g = gather_new(m, id);
    int rc = g == NULL ? dd_err_set(&err, -ENOMEM, "out of memory")
                       : node_exchange_begin(m->round, name, &(struct exchange_part){part, len},
                                             mpi_servers_on_gathered, g, &err);
    if (rc == 0)
        return;
    gather_forget(g);
    pmix_gathered(m->pmix, id, NULL, 0);
    fail_server(m, err.text);
}

static void on_helper_lost(void *arg)
{
    fail_server(arg, "lost the connection to ddrun-pmix");
}

static int start_pmix(const struct round *r, struct mpi *m, struct dd_err *err)
{
    char nspace[80];
    DD_AUTO(strv) struct dd_strv env = {0};
    (void)snprintf(nspace, sizeof(nspace), "ddrun-%s.%d", r->plan.token, r->plan.round);
    if (dd_strv_copy(&env, r->cfg->env) < 0 || framework_strip_launcher(&env) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct pmix_cfg cfg = {
        .base = r->base,
        .log = r->cfg->log,
        .helper = r->cfg->mpi.pmix_helper,
        .env = env.v,
        .tmp = r->cfg->mpi.tmp,
        .shm = r->cfg->mpi.shm,
        .nspace = nspace,
        .nodes = r->plan.nodes,
        .sizes = r->plan.sizes,
        .nnodes = r->plan.nnodes,
        .node_rank = r->plan.node_rank,
        .local_size = r->plan.local_size,
        .attempt = r->plan.restart_count,
        .round = r->plan.round,
        .on_gather = mpi_servers_on_gather,
        .on_abort = mpi_servers_on_abort,
        .on_lost = on_helper_lost,
        .arg = m,
    };
    return pmix_new(&m->pmix, &cfg, err);
}

/* Set the directory for shared memory of the ranks. ddrun removes it even if ranks are killed. */
static int pmix_spec(const struct round *r, const struct mpi *m, int local_rank,
                     struct dd_strv *env)
{
    static const char *const backing[] = {"OMPI_MCA_btl_vader_backing_directory",
                                          "OMPI_MCA_btl_sm_backing_directory"};
    const char *shm = pmix_shm(m->pmix);
    int rc = pmix_env(m->pmix, local_rank, env);
    for (size_t i = 0; i < 2 && shm != NULL && rc == 0; i++)
        if (dd_env_get(env->v, backing[i]) == NULL)
            rc = dd_env_set(env, backing[i], shm);
    /* MPICH 5 with PMIx fails if both interfaces are offered and none is selected */
    if (rc == 0 && (r->cfg->mpi.protocols & MPI_SERVERS_PMI1) != 0 &&
        dd_env_get(env->v, "MPIR_CVAR_PMI_VERSION") == NULL)
        rc = dd_env_set(env, "MPIR_CVAR_PMI_VERSION", "1");
    /* an allreduce of 8 MB over 4 ranks on 2 CPUs: 46 ms without yielding, 6 to 12 ms with it */
    if (rc == 0 && m->crowded && dd_env_get(env->v, "OMPI_MCA_mpi_yield_when_idle") == NULL)
        rc = dd_env_set(env, "OMPI_MCA_mpi_yield_when_idle", "1");
    return rc;
}

bool mpi_servers_have_ranks(const struct round *r)
{
    const struct mpi *m = features_state(r, &mpi_feature);
    return m != NULL && ((m->pmi1 != NULL && pmi1_has_ranks(m->pmi1)) ||
                         (m->pmix != NULL && pmix_has_ranks(m->pmix)));
}

/* ---- hooks ---- */

static bool is_crowded(int workers)
{
    struct node_cpus cpus = {0};
    bool crowded = node_cpus_get(&cpus, NULL) == 0 && cpus.count < workers;
    node_cpus_done(&cpus);
    return crowded;
}

static int mpi_prepare(void **state, const struct round *r, struct dd_err *err)
{
    if (r->cfg->mpi.protocols == 0)
        return 0;
    struct mpi *m = *state = calloc(1, sizeof(*m));
    if (m == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    LIST_INIT(&m->gathers);
    m->round = r;
    m->n = r->plan.local_size;
    m->fds = calloc((size_t)m->n, sizeof(*m->fds));
    m->why = calloc((size_t)m->n, sizeof(*m->why));
    if (m->fds == NULL || m->why == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    m->crowded = is_crowded(m->n);
    int rc = start_pmi1(r, m, err);
    if (rc == 0 && (r->cfg->mpi.protocols & MPI_SERVERS_PMIX) != 0)
        rc = start_pmix(r, m, err);
    return rc;
}

static int mpi_env(void *state, const struct round *r, int local_rank, struct worker_spec *spec)
{
    const struct mpi *m = state;
    int rc = dd_env_setf(&spec->env, "PMI_FD", "%d", worker_spec_fd(spec, m->fds[local_rank]));
    return rc == 0 && m->pmix != NULL ? pmix_spec(r, m, local_rank, &spec->env) : rc;
}

static int mpi_started(void *state, const struct round *r, struct dd_err *err)
{
    const struct mpi *m = state;
    (void)r;
    (void)err;
    pmi1_started(m->pmi1);
    return 0;
}

/* Return the exit code for MPI_Abort(code): the last byte, as a shell sees it, and never 0. */
static int abort_code(int code)
{
    return (code & 255) != 0 ? code & 255 : 1;
}

/* Apply MPI's rules to the exit: MPI_Abort, or an exit without MPI_Finalize. */
static void mpi_exit(void *state, const struct round *r, struct worker_end *end)
{
    struct mpi *m = state;
    struct worker_exit *e = &end->exit;
    char *why = m->why[e->local_rank];
    const struct pmi1_end one = pmi1_ended(m->pmi1, e->local_rank);
    const struct pmix_end x = m->pmix != NULL ? pmix_ended(m->pmix, e->local_rank)
                                              : (struct pmix_end){0};
    if (one.aborted || x.aborted) {
        const int code = one.aborted ? one.code : x.code;
        (void)snprintf(why, WHY_MAX, "it called MPI_Abort with code %d", code);
        e->code = abort_code(code);
        e->signal = 0;
    } else if ((one.open || x.open) && e->code == 0 && r->stop_sig == 0) {
        (void)snprintf(why, WHY_MAX, "it exited with 0, but without MPI_Finalize");
        e->code = 1;
    }
    if (end->why[0] == '\0')
        (void)snprintf(end->why, sizeof(end->why), "%s", why);
}

static void mpi_end(void *state, const struct round *r)
{
    struct mpi *m = state;
    node_exchange_drop(r, m);
    while (!LIST_EMPTY(&m->gathers)) {
        node_exchange_drop(r, LIST_FIRST(&m->gathers));
        gather_forget(LIST_FIRST(&m->gathers));
    }
    pmi1_free(m->pmi1);
    pmix_free(m->pmix);
    free(m->fds);
    free(m->why);
    free(m);
}

const struct round_feature mpi_feature = {
    .name = "mpi",
    .prepare = mpi_prepare,
    .worker_env = mpi_env,
    .started = mpi_started,
    .worker_exit = mpi_exit,
    .end = mpi_end,
};
