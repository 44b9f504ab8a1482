#include "rdzv/successor.h"

enum {
    FIRST_MS = 1000, /* time for the lost daemon's node to start another one, or for the network to
                        recover */
    STEP_MS = 3000,  /* for each node before this one in the succession */
    AGAIN_MS = 300,
    AGAIN_MAX_MS = 5000,
    SEARCH_MS = 1000, /* nodes that start together have joined by then */
    SEARCH_GUEST_MS = 3000,
    SEARCH_MAX_MS = 30000,
    SEARCH_REFUSED_MS = 1000,
};

bool successor_possible(const struct rdzv_cfg *cfg, const struct rdzv_members *last)
{
    return (rdzv_is_elastic(cfg) || cfg->max_restarts > 0) && last->n > 1;
}

int successor_place(const struct rdzv_members *last, int index)
{
    int place = 1;
    if (last->tie == index)
        return 0;
    for (int k = 0; k < last->n && k <= RDZV_SUCCESSORS; k++) {
        if (last->index[k] == index)
            return place;
        place += last->index[k] != last->tie;
    }
    return -1;
}

unsigned successor_turn_ms(int place, bool again)
{
    if (place == 0 && !again)
        return 0;
    return FIRST_MS + (place > 0 ? (unsigned)place - 1 : 0) * STEP_MS;
}

uint64_t successor_limit_ms(const struct rdzv_members *last, uint64_t rejoin_ms, uint64_t grace_ms)
{
    const unsigned turns = (unsigned)(last->n < RDZV_SUCCESSORS ? last->n : RDZV_SUCCESSORS);
    return rejoin_ms + grace_ms + FIRST_MS + STEP_MS * turns;
}

static unsigned successor_grow(unsigned *wait, unsigned first, unsigned most)
{
    const unsigned now = *wait > 0 ? *wait : first;
    *wait = 2 * now < most ? 2 * now : most;
    return now;
}

unsigned successor_again_ms(unsigned *wait)
{
    return successor_grow(wait, AGAIN_MS, AGAIN_MAX_MS);
}

/* Rejoining takes longer, as the workers of other nodes may need the grace period. */
void successor_cfg(struct rdzv_cfg *cfg, int64_t epoch, int index, uint64_t grace)
{
    cfg->epoch = epoch;
    cfg->tie = index;
    cfg->probes_first = 0;
    cfg->rejoin_ns += grace;
}

unsigned successor_search_wait_ms(unsigned *wait, bool host)
{
    return successor_grow(wait, host ? SEARCH_MS : SEARCH_GUEST_MS, SEARCH_MAX_MS);
}

unsigned successor_search_refused_ms(void)
{
    return SEARCH_REFUSED_MS;
}
