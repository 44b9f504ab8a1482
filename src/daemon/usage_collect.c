#include "daemon/usage_collect.h"

#include "base/io.h"
#include "daemon/node_questions.h"
#include "report/rank_set.h"
#include "report/usage.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_MS = 2000 };

struct usage_asked {
    struct node_question node; /* first */
    struct session *caller;
    int64_t caller_id;
    const struct rank_set *ranks; /* set while the nodes are chosen */
    json_t *workers;
};

struct usage_collect {
    struct usage_collect_cfg cfg;
    struct node_questions questions;
};

static struct usage_asked *usage_asked_of(struct node_question *q)
{
    return (struct usage_asked *)q;
}

static void usage_asked_drop(struct node_question *q)
{
    struct usage_asked *k = usage_asked_of(q);
    node_question_done(q);
    json_decref(k->workers);
    free(k);
}

static void usage_refuse(struct session *s, int64_t id, const char *why)
{
    session_send(s, MSG(CTL_REPLY, .id = id, .ok = false, .ends = true, .detail = why));
}

/* Reply with the answers that have arrived. */
static void usage_asked_end(struct node_question *q)
{
    struct usage_asked *k = usage_asked_of(q);
    struct session *s = k->caller;
    const int64_t id = k->caller_id;
    json_t *o = json_pack("{s:i,s:i,s:O}", "version", 1, "silent", q->waiting, "workers",
                          k->workers);
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(o);
    usage_asked_drop(q);
    const int rc = text == NULL ? -ENOMEM
                   : strlen(text) > SESSION_ANSWER_MAX
                       ? -EMSGSIZE
                       : session_answer(s, id, text, strlen(text), true);
    char too_long[60];
    (void)snprintf(too_long, sizeof(too_long), "the answer exceeds %d MiB",
                   SESSION_ANSWER_MAX >> 20);
    if (rc < 0)
        usage_refuse(s, id,
                     rc == -ENOMEM     ? "the daemon is out of memory"
                     : rc == -EMSGSIZE ? too_long
                                       : "the answer does not fit into the queue to this node");
}

/* ---- the question ---- */

static int usage_asked_wants(struct node_question *q, const struct rdzv_view *v, int first)
{
    const struct rank_set *ranks = usage_asked_of(q)->ranks;
    return ranks->n == 0 || rank_set_has_any(ranks, first, v->slots);
}

static int usage_asked_begin(struct usage_asked *k, const char *text, bool all_lines)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    if ((text[0] != '\0' && rank_set_parse(&ranks, text) < 0) ||
        (all_lines && rank_set_count(&ranks) != 1))
        return -EINVAL;
    k->workers = json_array();
    if (k->workers == NULL)
        return -ENOMEM;
    k->ranks = &ranks;
    const int rc = node_question_begin(&k->node, usage_asked_wants, LIMIT_MS * DD_NS_PER_MS);
    k->ranks = NULL;
    return rc;
}

int usage_collect_ask(struct usage_collect *c, struct session *caller, int64_t id,
                      const char *ranks, bool all_lines)
{
    const bool full = node_questions_full(&c->questions);
    struct usage_asked *k = full ? NULL : calloc(1, sizeof(*k));
    if (k == NULL)
        return full ? -EBUSY : -ENOMEM;
    *k = (struct usage_asked){.node = {.caller = caller}, .caller = caller, .caller_id = id};
    node_question_add(&c->questions, &k->node);
    const int rc = usage_asked_begin(k, ranks, all_lines);
    if (rc < 0) {
        usage_asked_drop(&k->node);
        return rc;
    }
    for (int i = 0; i < k->node.n; i++)
        session_send(node_question_session(&k->node, i),
                     MSG(USAGE_REQUEST, .id = k->node.id, .round = rdzv_round(c->cfg.machine),
                         .all_lines = all_lines, .ranks = ranks));
    return 0;
}

/* ---- answers ---- */

void usage_collect_take(struct usage_collect *c, const struct session *s, const struct msg_usage *m)
{
    struct node_question *q;
    struct asked_node *a = node_questions_find(&c->questions, m->id, s, &q);
    if (a == NULL)
        return;
    const int rc = usage_take(usage_asked_of(q)->workers, m->text, a->first, a->workers);
    if (rc < 0)
        dd_log(c->cfg.log, DD_LOG_WARN, "ignoring a USAGE message from %s: %s", s->name,
               rc == -ENOMEM ? "out of memory" : "it is malformed");
    node_question_answered(q, a);
}

void usage_collect_forget(struct usage_collect *c, const struct session *s)
{
    node_questions_forget(&c->questions, s);
}

/* ---- life ---- */

int usage_collect_new(struct usage_collect **ret, const struct usage_collect_cfg *cfg)
{
    struct usage_collect *c = *ret = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->cfg = *cfg;
    const struct node_questions_cfg questions = {.base = cfg->base,
                                                 .sessions = cfg->sessions,
                                                 .machine = cfg->machine,
                                                 .end = usage_asked_end,
                                                 .drop = usage_asked_drop};
    node_questions_init(&c->questions, &questions);
    return 0;
}

void usage_collect_free(struct usage_collect *c)
{
    if (c == NULL)
        return;
    node_questions_done(&c->questions);
    free(c);
}
