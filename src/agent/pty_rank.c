#include "agent/pty_rank.h"

#include "agent/agent.h"
#include "base/auto.h"
#include "worker/pty.h"

#include <errno.h>
#include <stdlib.h>

struct pty_rank {
    struct pty *pty; /* NULL: the worker has exited */
    int local_rank;
};

static int pty_rank_prepare(void **state, const struct round *r, struct dd_err *err)
{
    int local = r->cfg->pty_rank - r->plan.first_rank;
    if (r->cfg->pty_rank < 0 || local < 0 || local >= r->plan.local_size)
        return 0;
    struct pty_rank *p = *state = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    p->local_rank = local;
    int rc = pty_new(&p->pty, r->base, r->cfg->terminal, r->plan.world_size == 1, r->cfg->log, err);
    if (rc == 0)
        pty_keep_tail(p->pty, r->output, local);
    return rc;
}

static int pty_rank_env(void *state, const struct round *r, int local_rank,
                        struct worker_spec *spec)
{
    const struct pty_rank *p = state;
    (void)r;
    if (local_rank == p->local_rank)
        spec->tty = pty_path(p->pty);
    return 0;
}

static int pty_rank_started(void *state, const struct round *r, struct dd_err *err)
{
    struct pty_rank *p = state;
    (void)r;
    return pty_begin(p->pty, err);
}

/* Close the pseudo-terminal as soon as its worker exits, so that Ctrl-C reaches ddrun again. */
static void pty_rank_exit(void *state, const struct round *r, struct worker_end *end)
{
    struct pty_rank *p = state;
    (void)r;
    if (end->exit.local_rank == p->local_rank)
        pty_free(DD_TAKE(p->pty));
}

static void pty_rank_end(void *state, const struct round *r)
{
    struct pty_rank *p = state;
    (void)r;
    pty_free(p->pty);
    free(p);
}

uint64_t pty_rank_written(const struct round *r, int local_rank)
{
    const struct pty_rank *p = features_state(r, &pty_rank_feature);
    return p != NULL && p->pty != NULL && p->local_rank == local_rank ? pty_written(p->pty) : 0;
}

const struct round_feature pty_rank_feature = {
    .name = "pty",
    .prepare = pty_rank_prepare,
    .worker_env = pty_rank_env,
    .started = pty_rank_started,
    .worker_exit = pty_rank_exit,
    .end = pty_rank_end,
};
