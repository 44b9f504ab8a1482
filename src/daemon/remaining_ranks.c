#include "daemon/remaining_ranks.h"

#include "base/io.h"
#include "report/rank_set.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

enum { WAIT_S = 60, NAMES_MAX = 200, TEXT_MAX = 600 };

struct remaining_ranks {
    struct remaining_ranks_cfg cfg;
    struct event *timer;
    int round;            /* round of `left`; -1: none */
    bool reported;        /* the user has got the message of this round */
    struct rank_set left; /* ranks that have exited with 0 on nodes where others still run */
};

struct remaining {
    struct rank_set ranks;
    int left;         /* ranks that do not run any more */
    const char *node; /* borrowed; NULL: the ranks run on several nodes, or there are none */
};

/* Add the ranks of a node that still run. first: the first rank of the node. */
static int remaining_add_node(struct remaining *ret, const struct remaining_ranks *n,
                              const struct rdzv_view *v, int first)
{
    const size_t before = rank_set_count(&ret->ranks);
    int rc = 0;
    for (int rank = first; rc == 0 && !v->done && rank < first + v->slots; rank++)
        if (!rank_set_has(&n->left, rank))
            rc = rank_set_add(&ret->ranks, rank, rank);
    const size_t added = rank_set_count(&ret->ranks) - before;
    ret->left += v->slots - (int)added;
    if (added > 0)
        ret->node = before == 0 ? v->name : NULL;
    return rc;
}

static int remaining_find(struct remaining *ret, const struct remaining_ranks *n)
{
    struct rdzv_view v;
    int rc = 0, first = 0;
    for (int i = 0; rc == 0 && i < rdzv_planned(n->cfg.machine)->n; i++) {
        if (!rdzv_view(n->cfg.machine, rdzv_id_of_rank(n->cfg.machine, i), &v) || !v.part)
            return -ENOENT; /* a lost node ends the round */
        rc = remaining_add_node(ret, n, &v, first);
        first += v.slots;
    }
    return rc;
}

static void remaining_report(struct session *leader, const struct remaining *found)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(NAMES_MAX);
    char text[TEXT_MAX];
    const bool one = rank_set_count(&found->ranks) == 1;
    if (rank_set_name(&found->ranks, &names) < 0 || dd_buf_str(&names) == NULL)
        return;
    (void)snprintf(text, sizeof(text),
                   "%s%s%.100s still run%s; %d of %d ranks exited with 0, the last one %d s ago"
                   "\n  tip: 'ddctl stacks' shows what %s",
                   dd_buf_str(&names), found->node != NULL ? " on " : "",
                   found->node != NULL ? found->node : "", one ? "s" : "", found->left,
                   found->left + (int)rank_set_count(&found->ranks), WAIT_S,
                   one ? "it executes" : "they execute");
    session_send(leader, MSG(STATUS, .text = text));
}

static bool remaining_is_running(const struct remaining_ranks *n)
{
    return rdzv_state(n->cfg.machine) == RDZV_RUNNING && rdzv_round(n->cfg.machine) == n->round;
}

static void remaining_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct remaining_ranks *n = arg;
    struct remaining found = {0};
    (void)fd;
    (void)what;
    if (remaining_is_running(n) && n->cfg.sessions->leader != NULL &&
        remaining_find(&found, n) == 0 && found.ranks.n > 0 && found.left > 0) {
        n->reported = true;
        remaining_report(n->cfg.sessions->leader, &found);
    }
    rank_set_done(&found.ranks);
}

/* Start or restart the timer, unless the user has got the message of this round. */
static void remaining_wait(struct remaining_ranks *n)
{
    const struct timeval t = {.tv_sec = WAIT_S};
    const int round = rdzv_round(n->cfg.machine);
    if (rdzv_state(n->cfg.machine) != RDZV_RUNNING)
        return;
    if (n->round != round) {
        rank_set_done(&n->left);
        n->left = (struct rank_set){0};
        n->round = round;
        n->reported = false;
    }
    if (!n->reported)
        (void)evtimer_add(n->timer, &t);
}

void remaining_ranks_take(struct remaining_ranks *n, const struct msg_left *m)
{
    if (m->round != rdzv_round(n->cfg.machine))
        return;
    remaining_wait(n);
    DD_AUTO(rank_set) struct rank_set more = {0};
    if (rank_set_parse(&more, m->ranks) < 0)
        return;
    for (size_t i = 0; i < more.n; i++)
        (void)rank_set_add(&n->left, more.v[i].first, more.v[i].last);
}

void remaining_ranks_node_done(struct remaining_ranks *n)
{
    remaining_wait(n);
}

int remaining_ranks_new(struct remaining_ranks **ret, const struct remaining_ranks_cfg *cfg)
{
    struct remaining_ranks *n = *ret = calloc(1, sizeof(*n));
    if (n == NULL)
        return -ENOMEM;
    n->cfg = *cfg;
    n->round = -1;
    n->timer = evtimer_new(cfg->base, remaining_on_timer, n);
    return n->timer != NULL ? 0 : -ENOMEM;
}

void remaining_ranks_free(struct remaining_ranks *n)
{
    if (n == NULL)
        return;
    if (n->timer != NULL)
        event_free(n->timer);
    rank_set_done(&n->left);
    free(n);
}
