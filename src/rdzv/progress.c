#include "rdzv/progress.h"

enum { PLAUSIBLE = 1000000, JUMP = 1000 };

static bool is_odd(int64_t best, int64_t step)
{
    return step > PLAUSIBLE && step / JUMP > (best > 0 ? best : 0);
}

bool step_max_take(struct step_max *m, int64_t step)
{
    const bool odd = is_odd(m->best, step);
    const bool confirms = odd && m->odd >= 0 && step >= m->odd / 2;
    const bool higher = !confirms || step > m->odd;
    if (step <= m->best)
        return false;
    if (odd && !confirms) {
        m->odd = step;
        return true;
    }
    m->best = step;
    m->odd = -1;
    return higher;
}

int64_t step_max_get(const struct step_max *m)
{
    return m->best >= 0 ? m->best : m->odd;
}

int progress_round_over(struct progress *p, int64_t step)
{
    if (step_max_take(&p->max, step))
        p->stuck = 0;
    else if (p->later)
        p->stuck++;
    p->later = true;
    return p->stuck;
}
