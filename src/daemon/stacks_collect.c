#include "daemon/stacks_collect.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTIONS_MAX = 16, NAME_MAX_BYTES = 120 };

struct asked {
    const struct session *session; /* NULL: answered, or lost */
    int first, workers;
};

struct question {
    LIST_ENTRY(question) entry;
    struct stacks_collect *collect;
    struct stacks_question q;
    int64_t id;
    uint64_t begin_ns;
    struct event *limit;
    struct rank_set ranks; /* of q; empty: all */
    struct stacks found;
    struct asked *v;
    int n, waiting;
};

struct stacks_collect {
    struct stacks_collect_cfg cfg;
    LIST_HEAD(, question) questions;
    int n;
    int64_t last_id;
};

static void question_free(struct question *k)
{
    if (k->q.free_arg != NULL)
        k->q.free_arg(k->q.arg);
    LIST_REMOVE(k, entry);
    k->collect->n--;
    if (k->limit != NULL)
        event_free(k->limit);
    stacks_done(&k->found);
    rank_set_done(&k->ranks);
    free(k->v);
    free(k);
}

/* Add the ranks of a node of which nothing is known, as far as they were asked for. */
static void question_add_unread(struct question *k, const struct asked *a, const char *why)
{
    const struct stack what = {.kind = STACK_UNREAD, .note = why};
    for (int rank = a->first; rank < a->first + a->workers; rank++)
        if (k->ranks.n == 0 || rank_set_has(&k->ranks, rank))
            (void)stacks_add(&k->found, &what, rank, rank); /* -ENOMEM: the ranks are missing */
}

static void question_end(struct question *k)
{
    char why[NAME_MAX_BYTES];
    (void)snprintf(why, sizeof(why), "not read: the node did not answer within %.3g s",
                   (double)k->q.limit_ns / 1e9);
    for (int i = 0; i < k->n; i++)
        if (k->v[i].session != NULL)
            question_add_unread(k, &k->v[i], why);
    stacks_sort(&k->found);
    k->found.seconds = (double)(dd_now_ns() - k->begin_ns) / 1e9;
    struct stacks found = k->found;
    k->found = (struct stacks){0};
    const struct stacks_question q = k->q;
    const int64_t id = k->id;
    k->q.free_arg = NULL;
    question_free(k);
    q.done(q.arg, id, &found);
    stacks_done(&found);
}

static void question_on_limit(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    question_end(arg);
}

/* ---- the question ---- */

static bool question_wants(const struct question *k, const struct rdzv_view *v, int first)
{
    const char *node = k->q.node;
    if (node != NULL && node[0] != '\0' && strcmp(node, v->name) != 0)
        return false;
    for (int rank = first; rank < first + v->slots; rank++)
        if (k->ranks.n == 0 || rank_set_has(&k->ranks, rank))
            return true;
    return false;
}

/* Choose the nodes to ask. */
static int question_choose(struct question *k)
{
    struct rdzv *m = k->collect->cfg.machine;
    const int n = rdzv_planned(m)->n;
    struct rdzv_view v;
    int rank = 0;
    int rc = 0;
    k->v = calloc((size_t)n + 1, sizeof(*k->v));
    for (int i = 0; k->v != NULL && i < n && rc == 0; i++) {
        const int id = rdzv_id_of_rank(m, i);
        const struct session *s = session_of_id(k->collect->cfg.sessions, id);
        if (s == NULL || !rdzv_view(m, id, &v) || !v.part)
            break; /* a lost node ends the round, and the ranks after it are unknown */
        rc = stacks_add_node(&k->found, v.name, rank, v.slots);
        if (question_wants(k, &v, rank) && !v.done)
            k->v[k->n++] = (struct asked){.session = s, .first = rank, .workers = v.slots};
        rank += v.slots;
    }
    return k->v == NULL ? -ENOMEM : rc < 0 ? rc : k->n == 0 ? -ENOENT : 0;
}

/* The agents get less time than the question, for the way of their answers. */
static void question_send(struct question *k)
{
    const struct stacks_collect *c = k->collect;
    DD_AUTO(buf) struct dd_buf ranks = DD_BUF_INIT(STACKS_RANKS_TEXT);
    if (rank_set_text(&k->ranks, &ranks) < 0)
        dd_buf_clear(&ranks);
    k->waiting = k->n;
    for (int i = 0; i < k->n; i++) {
        struct session *s = session_of_id(c->cfg.sessions, k->v[i].session->id);
        session_send(s, MSG(STACKS_REQUEST, .id = k->id, .round = rdzv_round(c->cfg.machine),
                            .limit_ms = (int)(k->q.limit_ns / DD_NS_PER_MS * 7 / 8),
                            .all = k->q.all, .keep = k->q.keep, .ranks = dd_buf_str(&ranks)));
    }
}

static int question_prepare(struct question *k)
{
    const struct timeval limit = dd_timeval(k->q.limit_ns);
    int rc = 0;
    for (size_t i = 0; k->q.ranks != NULL && i < k->q.ranks->n && rc == 0; i++)
        rc = rank_set_add(&k->ranks, k->q.ranks->v[i].first, k->q.ranks->v[i].last);
    if (rc == 0)
        rc = question_choose(k);
    k->limit = rc == 0 ? evtimer_new(k->collect->cfg.base, question_on_limit, k) : NULL;
    if (rc == 0 && (k->limit == NULL || evtimer_add(k->limit, &limit) < 0))
        rc = -ENOMEM;
    k->q.ranks = NULL;
    k->q.node = NULL;
    return rc;
}

int64_t stacks_collect_ask(struct stacks_collect *c, const struct stacks_question *q)
{
    struct question *k = c->n < QUESTIONS_MAX ? calloc(1, sizeof(*k)) : NULL;
    if (k == NULL) {
        if (q->free_arg != NULL)
            q->free_arg(q->arg);
        return -EBUSY;
    }
    *k = (struct question){.collect = c, .q = *q, .id = ++c->last_id, .begin_ns = dd_now_ns()};
    const int64_t id = k->id;
    LIST_INSERT_HEAD(&c->questions, k, entry);
    c->n++;
    const int rc = question_prepare(k);
    if (rc < 0) {
        question_free(k);
        return rc;
    }
    question_send(k);
    return id;
}

/* ---- answers ---- */

static struct question *question_of_id(const struct stacks_collect *c, int64_t id)
{
    struct question *k;
    LIST_FOREACH (k, &c->questions, entry)
        if (k->id == id)
            return k;
    return NULL;
}

static struct asked *asked_of(const struct question *k, const struct session *s)
{
    for (int i = 0; i < k->n; i++)
        if (k->v[i].session == s)
            return &k->v[i];
    return NULL;
}

static void question_answered(struct question *k, struct asked *a)
{
    a->session = NULL;
    if (--k->waiting == 0)
        question_end(k);
}

void stacks_collect_take(struct stacks_collect *c, const struct session *s,
                         const struct msg_stacks *m)
{
    DD_AUTO(stacks) struct stacks theirs = {0};
    struct dd_err err = {0};
    struct question *k = question_of_id(c, m->id);
    struct asked *a = k != NULL ? asked_of(k, s) : NULL;
    if (a == NULL)
        return; /* too late, or never asked */
    int rc = stacks_parse(&theirs, m->text, a->first, a->workers, &err);
    if (rc == 0)
        rc = stacks_merge(&k->found, &theirs);
    if (rc < 0) {
        dd_log(c->cfg.log, DD_LOG_WARN, "ignoring the stacks of %s: %s", s->name, err.text);
        question_add_unread(k, a, "not read: the node sent an invalid answer");
    }
    question_answered(k, a);
}

void stacks_collect_forget(struct stacks_collect *c, const struct session *s)
{
    const struct timeval now = {0};
    struct question *next;
    for (struct question *k = LIST_FIRST(&c->questions); k != NULL; k = next) {
        struct asked *a = asked_of(k, s);
        next = LIST_NEXT(k, entry);
        if (k->q.caller == s) {
            question_free(k);
        } else if (a != NULL) {
            question_add_unread(k, a, "not read: the node was lost");
            a->session = NULL;
            if (--k->waiting == 0) /* later: done() may free sessions */
                (void)evtimer_add(k->limit, &now);
        }
    }
}

void stacks_collect_end(struct stacks_collect *c, int64_t id)
{
    struct question *k = question_of_id(c, id);
    if (k != NULL)
        question_end(k);
}

/* ---- life ---- */

int stacks_collect_new(struct stacks_collect **ret, const struct stacks_collect_cfg *cfg)
{
    struct stacks_collect *c = *ret = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->cfg = *cfg;
    return 0;
}

void stacks_collect_free(struct stacks_collect *c)
{
    if (c == NULL)
        return;
    while (!LIST_EMPTY(&c->questions))
        question_free(LIST_FIRST(&c->questions));
    free(c);
}
