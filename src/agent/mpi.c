/* MPI programs: the servers by which the ranks of a round find each other, and what their ends mean. */
#include "agent/exchange.h"
#include "agent/inner.h"
#include "pmi/pmi1.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ABORT_WAIT_MS = 500 }; /* who calls MPI_Abort may wait to be ended (MPICH 4.0 does) */

struct mpi_rank {
    bool aborted;
    char why[64]; /* "": it ended as any program does */
};

struct mpi {
    struct agent *agent;
    struct pmi1 *pmi1; /* NULL: not asked for */
    int n;
    int *fds; /* PMI_FD of each worker */
    struct mpi_rank *ranks;
};

/* The ranks would wait for ever: the first one's end ends the round. */
static void cannot_go_on(struct mpi *m, const char *why)
{
    dd_log(m->agent->cfg->log, DD_LOG_ERR, "MPI: %s", why);
    (void)snprintf(m->ranks[0].why, sizeof(m->ranks[0].why), "ddrun could not serve it; see the message above");
    if (m->agent->group != NULL)
        worker_group_end(m->agent->group, 0, SIGTERM, ABORT_WAIT_MS);
}

/* ---- PMI-1 ------------------------------------------------------------------------------------- */

static void on_all_told(void *arg, const struct exchange_part *parts, int n)
{
    struct mpi *m = arg;
    struct dd_err err = {0};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        if (i != m->agent->plan.node_rank)
            rc = pmi1_take(m->pmi1, parts[i].data, parts[i].len, &err);
    if (rc < 0)
        cannot_go_on(m, err.text);
    else
        pmi1_release(m->pmi1);
}

static void on_barrier(void *arg, unsigned seq, const void *part, size_t len)
{
    struct mpi *m = arg;
    struct dd_err err = {0};
    char name[32];
    if (m->agent->plan.nnodes == 1) {
        pmi1_release(m->pmi1);
        return;
    }
    (void)snprintf(name, sizeof(name), "pmi1.%u", seq);
    if (agent_exchange(m->agent, name, part, len, on_all_told, m, &err) < 0)
        cannot_go_on(m, err.text);
}

static void on_abort(void *arg, int local_rank)
{
    struct mpi *m = arg;
    m->ranks[local_rank].aborted = true;
    if (m->agent->group != NULL)
        worker_group_end(m->agent->group, local_rank, SIGTERM, ABORT_WAIT_MS);
}

static int start_pmi1(struct agent *a, struct mpi *m, struct dd_err *err)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "ddrun.%d", a->plan.round);
    const struct pmi1_cfg cfg = {
        .base = a->base,
        .log = a->cfg->log,
        .kvsname = name,
        .first_rank = a->plan.first_rank,
        .local_size = a->plan.local_size,
        .world_size = a->plan.world_size,
        .sizes = a->plan.sizes,
        .nnodes = a->plan.nnodes,
        .on_barrier = on_barrier,
        .on_abort = on_abort,
        .arg = m,
    };
    int rc = pmi1_new(&m->pmi1, &cfg, err);
    for (int i = 0; i < m->n && rc == 0; i++)
        m->fds[i] = pmi1_fd(m->pmi1, i);
    return rc;
}

/* ---- a round ----------------------------------------------------------------------------------- */

int mpi_prepare(struct agent *a, struct dd_err *err)
{
    if (a->cfg->mpi == 0)
        return 0;
    struct mpi *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    a->mpi = m;
    m->agent = a;
    m->n = a->plan.local_size;
    m->fds = calloc((size_t)m->n, sizeof(*m->fds));
    m->ranks = calloc((size_t)m->n, sizeof(*m->ranks));
    if (m->fds == NULL || m->ranks == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if ((a->cfg->mpi & AGENT_MPI_PMIX) != 0)
        return dd_err_set(err, -ENOTSUP, "--mpi=pmix: this ddrun was built without libpmix");
    return (a->cfg->mpi & (AGENT_MPI_PMI1 | AGENT_MPI_AUTO)) != 0 ? start_pmi1(a, m, err) : 0;
}

int mpi_spec(struct agent *a, int local_rank, struct worker_spec *spec)
{
    const struct mpi *m = a->mpi;
    if (m == NULL || m->pmi1 == NULL)
        return 0;
    spec->fds = &m->fds[local_rank];
    spec->nfds = 1;
    return dd_env_setf(&spec->env, "PMI_FD", "%d", WORKER_FIRST_FD);
}

void mpi_started(struct agent *a)
{
    if (a->mpi != NULL && a->mpi->pmi1 != NULL)
        pmi1_started(a->mpi->pmi1);
}

/* MPI_Abort(0) is no success either; of other codes a shell sees the last byte. */
static int abort_code(int code)
{
    return (code & 255) != 0 ? code & 255 : 1;
}

void mpi_ended(struct agent *a, struct worker_exit *e)
{
    struct mpi *m = a->mpi;
    if (m == NULL)
        return;
    struct mpi_rank *r = &m->ranks[e->local_rank];
    struct pmi1_end end = m->pmi1 != NULL ? pmi1_ended(m->pmi1, e->local_rank) : (struct pmi1_end){0};
    if (end.aborted) {
        (void)snprintf(r->why, sizeof(r->why), "it called MPI_Abort with code %d", end.code);
        e->code = abort_code(end.code);
        e->signal = 0;
    } else if (end.open && e->code == 0 && a->ends.stop_sig == 0) {
        (void)snprintf(r->why, sizeof(r->why), "it ended without MPI_Finalize");
        e->code = 1;
    }
}

const char *mpi_why(const struct agent *a, int local_rank)
{
    return a->mpi != NULL && a->mpi->ranks[local_rank].why[0] != '\0' ? a->mpi->ranks[local_rank].why : NULL;
}

void mpi_over(struct agent *a)
{
    struct mpi *m = a->mpi;
    if (m == NULL)
        return;
    a->mpi = NULL;
    agent_exchange_drop(a, m);
    pmi1_free(m->pmi1);
    free(m->fds);
    free(m->ranks);
    free(m);
}
