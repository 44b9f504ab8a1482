#include "stage/stage_tally.h"

void stage_tally_add(struct stage_tally *t, const struct stage_tally *child, uint32_t rank,
                     uint32_t lacks, uint32_t below)
{
    const uint32_t further = child->lag;
    const uint32_t own = lacks > further ? lacks - further : 0;
    const struct stage_tally slower = own >= further
                                          ? (struct stage_tally){.lag = own, .slowest = rank}
                                          : *child;
    /* the same node may be counted twice after it has changed its parent */
    t->done = child->done < below - t->done ? t->done + child->done : below;
    if (lacks == 0 || slower.lag <= t->lag)
        return;
    t->lag = slower.lag;
    t->slowest = slower.slowest;
}
