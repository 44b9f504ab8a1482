/* Steps that a program reports, and restarts that reach no new one. Pure. */
#ifndef DD_RDZV_PROGRESS_H
#define DD_RDZV_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* The highest step of a sequence. A step above a million that is more than a thousand times the
 * highest one may be a wrong number: the next step above the highest one decides whether it
 * counts. */
struct step_max {
    int64_t best; /* -1: none */
    int64_t odd;  /* a step that is not confirmed yet; -1: none */
};

#define STEP_MAX_NONE ((struct step_max){.best = -1, .odd = -1})

/* Returns true if the step is higher than all before it. step < 0: none. */
bool step_max_take(struct step_max *m, int64_t step);
/* Return the highest step; the unconfirmed one if there is no other; -1: none. */
int64_t step_max_get(const struct step_max *m);

struct progress {
    struct step_max max; /* highest step of all rounds */
    int stuck;           /* restarts in a row without a new step */
    bool later;          /* a round has ended before */
};

#define PROGRESS_NONE ((struct progress){.max = {.best = -1, .odd = -1}})

/* Record a failed round and its highest step (-1: none). Returns the number of restarts in a row
 * without a new step. */
int progress_round_over(struct progress *p, int64_t step);

#endif
