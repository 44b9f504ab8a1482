/* Progress: the steps that nodes report, and the end of a job whose restarts reach no new one. */
#include "rdzv/machine_inner.h"

#include <stdio.h>

enum { NO_PROGRESS_CODE = 93 };

void rdzv_progress_begin(struct rdzv *m)
{
    for (int id = 0; id < m->cfg.capacity; id++)
        m->members[id].step = -1;
}

int rdzv_on_progress(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (e->round == m->round && m->members[e->id].part)
        m->members[e->id].step = e->step;
    return 0;
}

/* Return the highest step of this round; -1: none. */
static int64_t round_step(const struct rdzv *m)
{
    int64_t step = -1;
    for (int id = 0; id < m->cfg.capacity; id++)
        step = m->members[id].step > step ? m->members[id].step : step;
    return step;
}

bool rdzv_lacks_progress(struct rdzv *m)
{
    const int64_t step = round_step(m);
    if (m->cfg.progress_restarts == 0 ||
        progress_round_over(&m->progress, step) < m->cfg.progress_restarts)
        return false;
    char highest[40] = "no step was reported";
    if (step_max_get(&m->progress.max) >= 0)
        (void)snprintf(highest, sizeof(highest), "the highest step is %lld",
                       (long long)step_max_get(&m->progress.max));
    (void)snprintf(
        m->verdict, sizeof(m->verdict),
        "ended the job after %d restart%s in a row without a new step; %s (--progress-restarts)",
        m->progress.stuck, m->progress.stuck == 1 ? "" : "s", highest);
    m->code = m->ruled_code = NO_PROGRESS_CODE;
    return true;
}

int64_t rdzv_step_reached(const struct rdzv *m, int *ret_stuck)
{
    struct step_max max = m->progress.max;
    (void)step_max_take(&max, round_step(m));
    *ret_stuck = m->progress.stuck;
    return step_max_get(&max);
}
