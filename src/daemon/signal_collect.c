#include "daemon/signal_collect.h"

#include "base/io.h"
#include "daemon/node_questions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIMIT_MS = 2000 };

struct signal_asked {
    struct node_question node; /* first */
    struct session *caller;
    int64_t caller_id;
    int64_t reached; /* processes that catch the signal and have got it */
};

struct signal_collect {
    struct node_questions questions;
};

static struct signal_asked *signal_asked_of(struct node_question *q)
{
    return (struct signal_asked *)q;
}

static void signal_asked_drop(struct node_question *q)
{
    node_question_done(q);
    free(signal_asked_of(q));
}

static void signal_reply(struct session *s, int64_t id, int64_t reached, int silent)
{
    char text[100];
    (void)snprintf(text, sizeof(text), "{\"sent\":true,\"reached\":%" PRId64 ",\"silent\":%d}",
                   reached, silent);
    session_send(s, MSG(CTL_REPLY, .id = id, .ok = true, .ends = true, .detail = text));
}

static void signal_asked_end(struct node_question *q)
{
    const struct signal_asked asked = *signal_asked_of(q);
    signal_asked_drop(q);
    signal_reply(asked.caller, asked.caller_id, asked.reached, asked.node.waiting);
}

static int signal_asked_wants(struct node_question *q, const struct rdzv_view *v, int first)
{
    (void)q;
    (void)v;
    (void)first;
    return 1;
}

int64_t signal_collect_begin(struct signal_collect *c, struct session *caller, int64_t id)
{
    struct signal_asked *k = node_questions_full(&c->questions) ? NULL : calloc(1, sizeof(*k));
    if (k == NULL) {
        signal_reply(caller, id, 0, 1); /* the result is unknown */
        return 0;
    }
    *k = (struct signal_asked){.node = {.caller = caller}, .caller = caller, .caller_id = id};
    node_question_add(&c->questions, &k->node);
    const int rc = node_question_begin(&k->node, signal_asked_wants, LIMIT_MS * DD_NS_PER_MS);
    if (rc == 0)
        return k->node.id;
    signal_asked_drop(&k->node);
    signal_reply(caller, id, 0, rc == -ENOENT ? 0 : 1); /* -ENOENT: all workers have ended */
    return 0;
}

void signal_collect_take(struct signal_collect *c, const struct session *s,
                         const struct msg_signalled *m)
{
    struct node_question *q;
    struct asked_node *a = node_questions_find(&c->questions, m->id, s, &q);
    if (a == NULL)
        return;
    signal_asked_of(q)->reached += m->reached;
    node_question_answered(q, a);
}

void signal_collect_forget(struct signal_collect *c, const struct session *s)
{
    node_questions_forget(&c->questions, s);
}

/* ---- life ---- */

int signal_collect_new(struct signal_collect **ret, const struct signal_collect_cfg *cfg)
{
    struct signal_collect *c = *ret = calloc(1, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    const struct node_questions_cfg questions = {.base = cfg->base,
                                                 .sessions = cfg->sessions,
                                                 .machine = cfg->machine,
                                                 .end = signal_asked_end,
                                                 .drop = signal_asked_drop};
    node_questions_init(&c->questions, &questions);
    return 0;
}

void signal_collect_free(struct signal_collect *c)
{
    if (c == NULL)
        return;
    node_questions_done(&c->questions);
    free(c);
}
