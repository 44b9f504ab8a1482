#include "daemon/node_questions.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

enum { QUESTIONS_MAX = 16 };

void node_questions_init(struct node_questions *all, const struct node_questions_cfg *cfg)
{
    *all = (struct node_questions){.cfg = *cfg};
    LIST_INIT(&all->list);
}

void node_questions_done(struct node_questions *all)
{
    struct node_question *next;
    for (struct node_question *q = LIST_FIRST(&all->list); q != NULL; q = next) {
        next = LIST_NEXT(q, entry);
        all->cfg.drop(q);
    }
}

bool node_questions_full(const struct node_questions *all)
{
    return all->n >= QUESTIONS_MAX;
}

void node_question_add(struct node_questions *all, struct node_question *q)
{
    q->all = all;
    q->id = ++all->last_id;
    LIST_INSERT_HEAD(&all->list, q, entry);
    all->n++;
}

void node_question_done(struct node_question *q)
{
    LIST_REMOVE(q, entry);
    q->all->n--;
    if (q->limit != NULL)
        event_free(q->limit);
    free(q->v);
}

/* ---- the question ---- */

static int node_question_choose(struct node_question *q, node_question_wants_f *wants)
{
    const struct node_questions_cfg *cfg = &q->all->cfg;
    const int n = rdzv_planned(cfg->machine)->n;
    struct rdzv_view v;
    int rank = 0;
    int rc = 0;
    q->v = calloc((size_t)n + 1, sizeof(*q->v));
    if (q->v == NULL)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        const int id = rdzv_id_of_rank(cfg->machine, i);
        const struct session *s = session_of_id(cfg->sessions, id);
        if (s == NULL || !rdzv_view(cfg->machine, id, &v) || !v.part)
            break; /* a lost node ends the round, and the ranks after it are unknown */
        rc = wants(q, &v, rank);
        if (rc < 0)
            return rc;
        if (rc > 0 && !v.done)
            q->v[q->n++] = (struct asked_node){.session = s, .first = rank, .workers = v.slots};
        rank += v.slots;
    }
    q->waiting = q->n;
    return q->n == 0 ? -ENOENT : 0;
}

static void node_question_on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct node_question *q = arg;
    (void)fd;
    (void)what;
    q->all->cfg.end(q);
}

int node_question_begin(struct node_question *q, node_question_wants_f *wants, uint64_t limit_ns)
{
    const struct timeval limit = dd_timeval(limit_ns);
    const int rc = node_question_choose(q, wants);
    if (rc < 0)
        return rc;
    q->limit = evtimer_new(q->all->cfg.base, node_question_on_limit, q);
    return q->limit == NULL || evtimer_add(q->limit, &limit) < 0 ? -ENOMEM : 0;
}

struct session *node_question_session(const struct node_question *q, int i)
{
    return session_of_id(q->all->cfg.sessions, q->v[i].session->id);
}

/* ---- answers ---- */

struct node_question *node_question_of_id(const struct node_questions *all, int64_t id)
{
    struct node_question *q;
    LIST_FOREACH (q, &all->list, entry)
        if (q->id == id)
            return q;
    return NULL;
}

static struct asked_node *node_question_node(const struct node_question *q, const struct session *s)
{
    for (int i = 0; i < q->n; i++)
        if (q->v[i].session == s)
            return &q->v[i];
    return NULL;
}

struct asked_node *node_questions_find(const struct node_questions *all, int64_t id,
                                       const struct session *s, struct node_question **q)
{
    *q = node_question_of_id(all, id);
    return *q != NULL ? node_question_node(*q, s) : NULL;
}

void node_question_answered(struct node_question *q, struct asked_node *a)
{
    a->session = NULL;
    if (--q->waiting == 0)
        q->all->cfg.end(q);
}

static void node_question_lose(struct node_question *q, struct asked_node *a)
{
    const struct timeval now = {0};
    if (q->all->cfg.lost != NULL)
        q->all->cfg.lost(q, a);
    a->session = NULL;
    if (--q->waiting == 0) /* later: end() may free sessions */
        (void)evtimer_add(q->limit, &now);
}

void node_questions_forget(struct node_questions *all, const struct session *s)
{
    struct node_question *next;
    for (struct node_question *q = LIST_FIRST(&all->list); q != NULL; q = next) {
        struct asked_node *a = node_question_node(q, s);
        next = LIST_NEXT(q, entry);
        if (q->caller == s)
            all->cfg.drop(q);
        else if (a != NULL)
            node_question_lose(q, a);
    }
}
