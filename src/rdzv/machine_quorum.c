/* The majority rule: with a majority of the last round, no other daemon can continue the job. */
#include "rdzv/machine_inner.h"

/* The members that count for a majority. */
enum among { AMONG_ALL, AMONG_CHOSEN, AMONG_UNMARKED };

/* True if the member counts: only members that can take part will remember the next round. */
static bool rdzv_quorum_counts(const struct rdzv *m, int id, enum among among)
{
    return id >= 0 && rdzv_is_fit(m, id) && m->members[id].votes &&
           (m->members[id].part || among != AMONG_CHOSEN) &&
           (m->members[id].mark == NULL || among != AMONG_UNMARKED);
}

static bool rdzv_quorum_majority(const struct rdzv *m, const struct rdzv_members *set,
                                 enum among among)
{
    int n = 0;
    bool tie = false;
    for (int i = 0; i < set->n; i++) {
        int index = set->index[i];
        bool is_here = index < m->cfg.capacity && rdzv_quorum_counts(m, m->by_index[index], among);
        n += is_here;
        tie |= is_here && index == set->tie;
    }
    return 2 * n > set->n || (2 * n == set->n && tie);
}

/* Of the rounds of older daemons, a majority is needed of the last one known to be committed and of
 * every later one, because a later one may have been committed unnoticed. */
static bool known_quorum(const struct rdzv *m, enum among among)
{
    const struct rdzv_members *last = NULL;
    /* A successor waits for its own node, which remembers the last round, or, if that node's agent
     * was restarted, for other nodes that remember it. */
    if (m->cfg.epoch > 0 && (rdzv_own_id(m) < 0 || m->nknown == 0))
        return false;
    for (int i = 0; i < m->nknown; i++)
        if (m->known_committed[i] && (last == NULL || rdzv_members_newer(&m->known[i], last)))
            last = &m->known[i];
    for (int i = 0; i < m->nknown; i++)
        if ((last == NULL || !rdzv_members_newer(last, &m->known[i])) &&
            !rdzv_quorum_majority(m, &m->known[i], among))
            return false;
    return true;
}

static bool quorum(const struct rdzv *m, enum among among)
{
    return m->base.epoch >= 0 ? rdzv_quorum_majority(m, &m->base, among) : known_quorum(m, among);
}

bool rdzv_quorum(const struct rdzv *m)
{
    return quorum(m, AMONG_ALL);
}

bool rdzv_part_quorum(const struct rdzv *m)
{
    return quorum(m, AMONG_CHOSEN);
}

bool rdzv_unmarked_quorum(const struct rdzv *m)
{
    return quorum(m, AMONG_UNMARKED);
}
