/* The connected members, what they remember of older daemons, and their order in the next round. */
#include "rdzv/machine_inner.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool rdzv_is_fit(const struct rdzv *m, int id)
{
    return m->members[id].here && !m->members[id].unfit;
}

int rdzv_fit(const struct rdzv *m)
{
    return m->here - m->unfit;
}

/* ---- what older daemons left ---- */

int rdzv_last_size(const struct rdzv *m)
{
    int n = m->base.n;
    for (int i = 0; i < m->nknown && m->base.epoch < 0; i++)
        n = m->known[i].n > n ? m->known[i].n : n;
    return n;
}

static int rdzv_members_learn(struct rdzv *m, const struct rdzv_members *set, bool committed)
{
    if (set == NULL || set->epoch < 0)
        return 0;
    for (int i = 0; i < m->nknown; i++)
        if (rdzv_members_same(&m->known[i], set)) {
            m->known_committed[i] |= committed;
            return 0;
        }
    if (m->nknown == KNOWN_MAX)
        return -E2BIG;
    m->known[m->nknown] = RDZV_MEMBERS_NONE;
    int rc = rdzv_members_copy(&m->known[m->nknown], set);
    if (rc == 0)
        m->known_committed[m->nknown++] = committed;
    return rc;
}

static void continue_from(struct rdzv *m, const struct rdzv_members *set)
{
    if (set == NULL || set->epoch < 0)
        return;
    if (set->round >= m->round)
        m->round = set->round + 1;
    if (set->restarts > m->restarts)
        m->restarts = set->restarts;
}

int rdzv_merge_history(struct rdzv *m, const struct rdzv_event *join)
{
    if (m->base.epoch >= 0)
        return 0;
    int rc = rdzv_members_learn(m, join->committed, true);
    if (rc == 0)
        rc = rdzv_members_learn(m, join->planned, false);
    if (rc < 0 || m->begun)
        return rc;
    continue_from(m, join->committed);
    continue_from(m, join->planned);
    return 0;
}

/* Return the slot for the time of a restart. back: 0: the last of `restarts`; 1: the one before. */
static uint64_t *spent_at(const struct rdzv *m, int restarts, int back)
{
    return &m->spent[(restarts - 1 - back) % m->cfg.max_restarts];
}

void rdzv_merge_restart_ages(struct rdzv *m, const struct rdzv_event *join, uint64_t now)
{
    const int restarts = join->planned != NULL && join->planned->epoch >= 0
                             ? join->planned->restarts
                             : 0;
    if (m->spent == NULL || join->nages == 0)
        return;
    for (int i = 0; i < restarts && i < m->cfg.max_restarts; i++) {
        uint64_t age =
            join->ages[i < join->nages ? i : join->nages - 1]; /* older ages were not sent */
        uint64_t at = age < now ? now - age : 0;
        uint64_t *known = spent_at(m, restarts, i);
        if (at > *known)
            *known = at;
    }
}

int rdzv_ages(const struct rdzv *m, uint64_t now, uint64_t *ages, int max)
{
    int n = 0;
    for (; m->spent != NULL && n < m->restarts && n < m->cfg.max_restarts && n < max; n++)
        ages[n] = now - *spent_at(m, m->restarts, n);
    return n;
}

bool rdzv_misses_nodes(const struct rdzv *m)
{
    const struct rdzv_members *last = m->begun ? NULL : rdzv_last_known(m);
    for (int k = 0; last != NULL && k < last->n; k++)
        if (last->index[k] >= m->cfg.capacity || m->by_index[last->index[k]] < 0)
            return true;
    return false;
}

void rdzv_forget(struct rdzv_members *set, int index)
{
    int k = 0;
    while (k < set->n && set->index[k] != index)
        k++;
    if (k == set->n)
        return;
    memmove(&set->index[k], &set->index[k + 1], (size_t)(set->n - k - 1) * sizeof(*set->index));
    set->n--;
}

/* ---- places ---- */

struct unplaced {
    const char *name;
    int id;
};

/* Compare by name, digits as numbers: node2 before node10. */
static int rdzv_members_by_name(const void *a, const void *b)
{
    const struct unplaced *x = a;
    const struct unplaced *y = b;
    int c = strverscmp(x->name, y->name);
    return c != 0 ? c : x->id - y->id;
}

/* Assign free indexes to members that joined without one, in the order of their names. */
static int place_members(struct rdzv *m)
{
    DD_AUTO(free) struct unplaced *todo = calloc((size_t)m->cfg.capacity, sizeof(*todo));
    if (todo == NULL)
        return -ENOMEM;
    size_t n = 0;
    for (int id = 0; id < m->cfg.capacity; id++)
        if (m->members[id].here && m->members[id].index < 0)
            todo[n++] = (struct unplaced){rdzv_member_name(m, id), id};
    qsort(todo, n, sizeof(*todo), rdzv_members_by_name);
    for (int index = 0, next = 0; next < (int)n; index++)
        if (m->by_index[index] < 0) {
            m->by_index[index] = todo[next].id;
            m->members[todo[next++].id].index = index;
        }
    return 0;
}

const struct rdzv_members *rdzv_last_known(const struct rdzv *m)
{
    const struct rdzv_members *last = NULL;
    for (int i = 0; i < m->nknown; i++)
        if (last == NULL || rdzv_members_newer(&m->known[i], last))
            last = &m->known[i];
    return last;
}

/* Load the order of the previous round, from this daemon or from what its members remember. Returns
 * the number of node ranks. */
static int previous_order(struct rdzv *m)
{
    const struct rdzv_members *last = rdzv_last_known(m);
    if (m->begun)
        return m->norder;
    for (int k = 0; last != NULL && k < last->n && k < m->cfg.capacity; k++) {
        int index = last->index[k];
        m->order[k] = index < m->cfg.capacity ? m->by_index[index] : -1;
        m->norder = k + 1;
    }
    return m->norder;
}

/* Find the members of the previous round, also those that were lost and have returned. */
static void find_survivors(struct rdzv *m, int before)
{
    for (int k = 0; k < before; k++) {
        int index = k < m->planned.n ? m->planned.index[k] : -1;
        m->seats[k] = m->order[k] < 0 && index >= 0 ? m->by_index[index] : m->order[k];
    }
}

/* Candidates for the next round. */
struct pick {
    enum rest rest;
    bool rests; /* pick nodes of the level `rest`; false: ignore levels */
    bool votes;
    bool *taken; /* [capacity] by id */
};

static bool is_picked(const struct rdzv *m, const struct pick *p, int id)
{
    return id >= 0 && !p->taken[id] && rdzv_is_fit(m, id) &&
           (p->rests ? rdzv_rest(m, id) : REST_NONE) == p->rest;
}

/* Give members of the previous round their former node ranks. */
static void seat_survivors(struct rdzv *m, int before, const struct pick *p)
{
    for (int k = 0; k < before; k++)
        if (m->order[k] < 0 && is_picked(m, p, m->seats[k])) {
            m->order[k] = m->seats[k];
            p->taken[m->seats[k]] = true;
        }
}

/* Give the other members free node ranks, then further ones. Returns the number of node ranks. */
static int seat_others(struct rdzv *m, int places, int limit, const struct pick *p)
{
    for (int k = 0, index = 0; index < m->cfg.capacity; index++) {
        int id = m->by_index[index];
        if (!is_picked(m, p, id) || m->members[id].votes != p->votes)
            continue;
        while (k < places && m->order[k] >= 0)
            k++;
        if (k >= limit)
            break;
        m->order[k++] = id;
        p->taken[id] = true;
        places = k > places ? k : places;
    }
    return places;
}

static int count_seats(const struct rdzv *m, int places)
{
    int n = 0;
    for (int k = 0; k < places; k++)
        n += m->order[k] >= 0;
    return n;
}

/* Members of the previous round keep their order. New members that remember the last round precede
 * those that do not. Nodes to rest take the places that are left; nodes that the scheduler takes
 * out of service do so only if the others are too few. */
static void fill_order(struct rdzv *m, int before, bool rests, bool *taken)
{
    int limit = m->cfg.max_nodes;
    int n = 0;
    int places = before;
    if (m->cfg.grow == RDZV_GROW_NO && before > 0 && before < limit)
        limit = before;
    for (int k = 0; k < before; k++)
        m->order[k] = -1;
    for (int rest = REST_NONE; rest < (rests ? REST_LEVELS : REST_EARLIER); rest++) {
        if (rest == REST_MARKED && count_seats(m, places) >= m->cfg.min_nodes)
            break;
        struct pick p = {.rest = (enum rest)rest, .rests = rests, .votes = true, .taken = taken};
        seat_survivors(m, before, &p);
        places = seat_others(m, places, limit, &p);
        p.votes = false;
        places = seat_others(m, places, limit, &p);
    }
    for (int k = 0; k < places; k++)
        if (m->order[k] >= 0 && n < limit)
            m->order[n++] = m->order[k];
    m->norder = n;
}

static int remember_plan(struct rdzv *m)
{
    int *index = calloc((size_t)m->norder + 1, sizeof(*index));
    if (index == NULL)
        return -ENOMEM;
    for (int k = 0; k < m->norder; k++)
        index[k] = m->members[m->order[k]].index;
    rdzv_members_clear(&m->planned);
    m->planned = (struct rdzv_members){.epoch = m->cfg.epoch,
                                       .round = m->round,
                                       .restarts = m->restarts,
                                       .tie = m->cfg.tie,
                                       .n = m->norder,
                                       .index = index};
    return 0;
}

static int choose(struct rdzv *m, int before, bool rests)
{
    DD_AUTO(free) bool *taken = calloc((size_t)m->cfg.capacity, sizeof(*taken));
    if (taken == NULL)
        return -ENOMEM;
    fill_order(m, before, rests, taken);
    for (int id = 0; id < m->cfg.capacity; id++) {
        m->members[id].part = false;
        m->members[id].node_rank = -1;
    }
    for (int k = 0; k < m->norder; k++) {
        m->members[m->order[k]].part = true;
        m->members[m->order[k]].node_rank = k;
    }
    return 0;
}

/* Leave out no node if the job would then lack the majority of the last round. */
int rdzv_choose(struct rdzv *m, uint64_t now)
{
    int rc = place_members(m);
    if (rc < 0)
        return rc;
    rdzv_settle_charges(m, now);
    const int before = previous_order(m);
    find_survivors(m, before);
    rc = choose(m, before, true);
    if (rc == 0 && !rdzv_part_quorum(m))
        rc = choose(m, before, false);
    return rc < 0 ? rc : remember_plan(m);
}
