#include "daemon/stacks_collect.h"

#include "base/io.h"
#include "daemon/node_questions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 120 };

struct stacks_asked {
    struct node_question node; /* first */
    struct stacks_question q;
    uint64_t begin_ns;
    struct rank_set ranks; /* ranks that q asks for; empty: all */
    struct stacks found;
};

struct stacks_collect {
    struct stacks_collect_cfg cfg;
    struct node_questions questions;
};

static struct stacks_asked *stacks_asked_of(struct node_question *q)
{
    return (struct stacks_asked *)q;
}

static void stacks_asked_drop(struct node_question *q)
{
    struct stacks_asked *k = stacks_asked_of(q);
    if (k->q.free_arg != NULL)
        k->q.free_arg(k->q.arg);
    node_question_done(q);
    stacks_done(&k->found);
    rank_set_done(&k->ranks);
    free(k);
}

/* Add the requested ranks of a node whose stacks are unknown. */
static void stacks_add_unread(struct stacks_asked *k, const struct asked_node *a, const char *why)
{
    const struct stack what = {.kind = STACK_UNREAD, .note = why};
    for (int rank = a->first; rank < a->first + a->workers; rank++)
        if (k->ranks.n == 0 || rank_set_has(&k->ranks, rank))
            (void)stacks_add(&k->found, &what, rank, rank); /* -ENOMEM: the ranks are missing */
}

static void stacks_add_lost(struct node_question *q, const struct asked_node *a)
{
    stacks_add_unread(stacks_asked_of(q), a, "not read: the node was lost");
}

static void stacks_asked_end(struct node_question *question)
{
    struct stacks_asked *k = stacks_asked_of(question);
    char why[NAME_MAX_BYTES];
    const uint64_t waited = dd_now_ns() - k->begin_ns; /* below the limit: stacks_collect_end() */
    (void)snprintf(why, sizeof(why), "not read: the node did not answer within %.3g s",
                   (double)(waited < k->q.limit_ns ? waited : k->q.limit_ns) / 1e9);
    for (int i = 0; i < question->n; i++)
        if (question->v[i].session != NULL)
            stacks_add_unread(k, &question->v[i], why);
    (void)stacks_resolve(&k->found); /* -ENOMEM: some ranks keep the names that NCCL has for them */
    stacks_sort(&k->found);
    k->found.seconds = (double)(dd_now_ns() - k->begin_ns) / 1e9;
    struct stacks found = k->found;
    k->found = (struct stacks){0};
    const struct stacks_question q = k->q;
    const int64_t id = question->id;
    k->q.free_arg = NULL;
    stacks_asked_drop(question);
    q.done(q.arg, id, &found);
    stacks_done(&found);
}

/* ---- the question ---- */

static int stacks_asked_wants(struct node_question *q, const struct rdzv_view *v, int first)
{
    struct stacks_asked *k = stacks_asked_of(q);
    const char *node = k->q.node;
    const int rc = stacks_add_node(&k->found, v->name, first, v->slots);
    if (rc < 0 || (node != NULL && node[0] != '\0' && strcmp(node, v->name) != 0))
        return rc;
    return k->ranks.n == 0 || rank_set_has_any(&k->ranks, first, v->slots);
}

/* The agents get a shorter limit than the question, so that their answers arrive in time. */
static void stacks_asked_send(struct stacks_asked *k, struct rdzv *machine)
{
    DD_AUTO(buf) struct dd_buf ranks = DD_BUF_INIT(STACKS_RANKS_TEXT);
    if (rank_set_text(&k->ranks, &ranks) < 0)
        dd_buf_clear(&ranks);
    for (int i = 0; i < k->node.n; i++)
        session_send(node_question_session(&k->node, i),
                     MSG(STACKS_REQUEST, .id = k->node.id, .round = rdzv_round(machine),
                         .limit_ms = (int)(k->q.limit_ns / DD_NS_PER_MS * 7 / 8), .all = k->q.all,
                         .keep = k->q.keep, .native = k->q.native, .ranks = dd_buf_str(&ranks)));
}

static int stacks_asked_begin(struct stacks_asked *k)
{
    int rc = 0;
    for (size_t i = 0; k->q.ranks != NULL && i < k->q.ranks->n && rc == 0; i++)
        rc = rank_set_add(&k->ranks, k->q.ranks->v[i].first, k->q.ranks->v[i].last);
    if (rc == 0)
        rc = node_question_begin(&k->node, stacks_asked_wants, k->q.limit_ns);
    k->q.ranks = NULL;
    k->q.node = NULL;
    return rc;
}

int64_t stacks_collect_ask(struct stacks_collect *c, const struct stacks_question *q)
{
    const bool full = node_questions_full(&c->questions);
    struct stacks_asked *k = full ? NULL : calloc(1, sizeof(*k));
    if (k == NULL) {
        if (q->free_arg != NULL)
            q->free_arg(q->arg);
        return full ? -EBUSY : -ENOMEM;
    }
    *k = (struct stacks_asked){.node = {.caller = q->caller}, .q = *q, .begin_ns = dd_now_ns()};
    node_question_add(&c->questions, &k->node);
    const int64_t id = k->node.id;
    const int rc = stacks_asked_begin(k);
    if (rc < 0) {
        stacks_asked_drop(&k->node);
        return rc;
    }
    stacks_asked_send(k, c->cfg.machine);
    return id;
}

/* ---- answers ---- */

void stacks_collect_take(struct stacks_collect *c, const struct session *s,
                         const struct msg_stacks *m)
{
    DD_AUTO(stacks) struct stacks theirs = {0};
    struct dd_err err = {0};
    struct node_question *q;
    struct asked_node *a = node_questions_find(&c->questions, m->id, s, &q);
    if (a == NULL)
        return;
    struct stacks_asked *k = stacks_asked_of(q);
    int rc = stacks_parse(&theirs, m->text, a->first, a->workers, &err);
    if (rc == 0)
        rc = stacks_merge(&k->found, &theirs);
    if (rc < 0) {
        dd_log(c->cfg.log, DD_LOG_WARN, "ignoring the stacks of %s: %s", s->name,
               err.text[0] != '\0' ? err.text : strerror(-rc));
        stacks_add_unread(k, a,
                          rc == -ENOMEM ? "not read: the daemon is out of memory"
                                        : "not read: the node sent an invalid answer");
    }
    node_question_answered(q, a);
}

void stacks_collect_forget(struct stacks_collect *c, const struct session *s)
{
    node_questions_forget(&c->questions, s);
}

void stacks_collect_end(struct stacks_collect *c, int64_t id)
{
    struct node_question *q = node_question_of_id(&c->questions, id);
    if (q != NULL)
        stacks_asked_end(q);
}

/* ---- life ---- */

int stacks_collect_new(struct stacks_collect **ret, const struct stacks_collect_cfg *cfg)
{
    struct stacks_collect *c = *ret = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->cfg = *cfg;
    const struct node_questions_cfg questions = {.base = cfg->base,
                                                 .sessions = cfg->sessions,
                                                 .machine = cfg->machine,
                                                 .end = stacks_asked_end,
                                                 .lost = stacks_add_lost,
                                                 .drop = stacks_asked_drop};
    node_questions_init(&c->questions, &questions);
    return 0;
}

void stacks_collect_free(struct stacks_collect *c)
{
    if (c == NULL)
        return;
    node_questions_done(&c->questions);
    free(c);
}
