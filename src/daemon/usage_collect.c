#include "daemon/usage_collect.h"

#include "base/io.h"
#include "report/rank_set.h"
#include "report/usage.h"

#include <errno.h>
#include <event2/event.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { QUESTIONS_MAX = 16, LIMIT_MS = 2000 };

struct node_asked {
    const struct session *session; /* NULL: answered, or lost */
    int first, workers;
};

struct usage_question {
    LIST_ENTRY(usage_question) entry;
    struct usage_collect *collect;
    struct session *caller;
    int64_t caller_id, id;
    struct event *limit;
    json_t *workers;
    struct node_asked *v;
    int n, waiting;
};

struct usage_collect {
    struct usage_collect_cfg cfg;
    LIST_HEAD(, usage_question) questions;
    int n;
    int64_t last_id;
};

static void question_free(struct usage_question *k)
{
    LIST_REMOVE(k, entry);
    k->collect->n--;
    if (k->limit != NULL)
        event_free(k->limit);
    json_decref(k->workers);
    free(k->v);
    free(k);
}

static void refuse(struct session *s, int64_t id, const char *why)
{
    session_send(s, MSG(CTL_REPLY, .id = id, .ok = false, .ends = true, .detail = why));
}

/* Reply with what is known. */
static void question_end(struct usage_question *k)
{
    struct session *s = k->caller;
    const int64_t id = k->caller_id;
    json_t *o = json_pack("{s:i,s:i,s:O}", "version", 1, "silent", k->waiting, "workers",
                          k->workers);
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    question_free(k);
    if (text == NULL || strlen(text) > SESSION_ANSWER_MAX)
        refuse(s, id, "the answer of the nodes is too long");
    else if (session_answer(s, id, text, strlen(text), true) < 0)
        refuse(s, id, "the link to this node is too busy to send the answer");
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    question_end(arg);
}

/* ---- the question ---- */

static bool is_wanted(const struct rank_set *ranks, int first, int workers)
{
    for (int rank = first; rank < first + workers; rank++)
        if (ranks->n == 0 || rank_set_has(ranks, rank))
            return true;
    return false;
}

/* Choose the nodes to ask. */
static int question_choose(struct usage_question *k, const struct rank_set *ranks)
{
    struct rdzv *m = k->collect->cfg.machine;
    const int n = rdzv_planned(m)->n;
    struct rdzv_view v;
    int rank = 0;
    k->v = calloc((size_t)n + 1, sizeof(*k->v));
    for (int i = 0; k->v != NULL && i < n; i++) {
        const int id = rdzv_id_of_rank(m, i);
        const struct session *s = session_of_id(k->collect->cfg.sessions, id);
        if (s == NULL || !rdzv_view(m, id, &v) || !v.part)
            break; /* a lost node ends the round, and the ranks after it are unknown */
        if (!v.done && is_wanted(ranks, rank, v.slots))
            k->v[k->n++] = (struct node_asked){.session = s, .first = rank, .workers = v.slots};
        rank += v.slots;
    }
    return k->v == NULL ? -ENOMEM : k->n == 0 ? -ENOENT : 0;
}

static int question_prepare(struct usage_question *k, const char *text, bool all_lines)
{
    const struct timeval limit = dd_timeval(LIMIT_MS * DD_NS_PER_MS);
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    if ((text[0] != '\0' && rank_set_parse(&ranks, text) < 0) ||
        (all_lines && rank_set_count(&ranks) != 1))
        return -EINVAL;
    const int rc = question_choose(k, &ranks);
    if (rc < 0)
        return rc;
    k->workers = json_array();
    k->limit = evtimer_new(k->collect->cfg.base, on_limit, k);
    return k->workers == NULL || k->limit == NULL || evtimer_add(k->limit, &limit) < 0 ? -ENOMEM
                                                                                       : 0;
}

int usage_collect_ask(struct usage_collect *c, struct session *caller, int64_t id,
                      const char *ranks, bool all_lines)
{
    struct usage_question *k = c->n < QUESTIONS_MAX ? calloc(1, sizeof(*k)) : NULL;
    if (k == NULL)
        return -EBUSY;
    *k = (struct usage_question){
        .collect = c, .caller = caller, .caller_id = id, .id = ++c->last_id};
    LIST_INSERT_HEAD(&c->questions, k, entry);
    c->n++;
    const int rc = question_prepare(k, ranks, all_lines);
    if (rc < 0) {
        question_free(k);
        return rc;
    }
    k->waiting = k->n;
    for (int i = 0; i < k->n; i++)
        session_send(session_of_id(c->cfg.sessions, k->v[i].session->id),
                     MSG(USAGE_REQUEST, .id = k->id, .round = rdzv_round(c->cfg.machine),
                         .all_lines = all_lines, .ranks = ranks));
    return 0;
}

/* ---- answers ---- */

static struct usage_question *question_of_id(const struct usage_collect *c, int64_t id)
{
    struct usage_question *k;
    LIST_FOREACH (k, &c->questions, entry)
        if (k->id == id)
            return k;
    return NULL;
}

static struct node_asked *asked_of(const struct usage_question *k, const struct session *s)
{
    for (int i = 0; i < k->n; i++)
        if (k->v[i].session == s)
            return &k->v[i];
    return NULL;
}

void usage_collect_take(struct usage_collect *c, const struct session *s, const struct msg_usage *m)
{
    struct usage_question *k = question_of_id(c, m->id);
    struct node_asked *a = k != NULL ? asked_of(k, s) : NULL;
    if (a == NULL)
        return; /* too late, or never asked */
    if (usage_take(k->workers, m->text, a->first, a->workers) < 0)
        dd_log(c->cfg.log, DD_LOG_WARN, "ignoring malformed USAGE from %s", s->name);
    a->session = NULL;
    if (--k->waiting == 0)
        question_end(k);
}

void usage_collect_forget(struct usage_collect *c, const struct session *s)
{
    const struct timeval now = {0};
    struct usage_question *next;
    for (struct usage_question *k = LIST_FIRST(&c->questions); k != NULL; k = next) {
        struct node_asked *a = asked_of(k, s);
        next = LIST_NEXT(k, entry);
        if (k->caller == s) {
            question_free(k);
        } else if (a != NULL) {
            a->session = NULL;
            if (--k->waiting == 0) /* later: a reply may free sessions */
                (void)evtimer_add(k->limit, &now);
        }
    }
}

/* ---- life ---- */

int usage_collect_new(struct usage_collect **ret, const struct usage_collect_cfg *cfg)
{
    struct usage_collect *c = *ret = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->cfg = *cfg;
    return 0;
}

void usage_collect_free(struct usage_collect *c)
{
    if (c == NULL)
        return;
    while (!LIST_EMPTY(&c->questions))
        question_free(LIST_FIRST(&c->questions));
    free(c);
}
