/* Questions to the agents of running nodes: which nodes were asked, and which have yet to answer. A
 * question ends when all have answered or at its time limit. The callers (stacks_collect,
 * usage_collect, signal_collect) define the content of questions and answers. */
#ifndef DD_DAEMON_NODE_QUESTIONS_H
#define DD_DAEMON_NODE_QUESTIONS_H

#include "daemon/session.h"
#include "rdzv/machine.h"

#include <sys/queue.h>

struct event;
struct event_base;

struct asked_node {
    const struct session *session; /* NULL: has answered, or is lost */
    int first, workers;            /* ranks of the node: first to first + workers - 1 */
};

/* The first member of what the caller allocates for each question. */
struct node_question {
    LIST_ENTRY(node_question) entry;
    struct node_questions *all;
    const struct session
        *caller; /* the question is dropped when this session is gone; NULL: none */
    int64_t id;
    struct event *limit;
    struct asked_node *v;
    int n, waiting; /* nodes that were asked; nodes that have not answered */
};

struct node_questions_cfg { /* all pointers are borrowed */
    struct event_base *base;
    const struct session_set *sessions;
    struct rdzv *machine;
    /* Called when all nodes have answered or the time limit expires; frees the question. */
    void (*end)(struct node_question *q);
    /* Called when a node that was asked is lost; NULL: do nothing. */
    void (*lost)(struct node_question *q, const struct asked_node *a);
    /* Free the question without a result; calls node_question_done(). */
    void (*drop)(struct node_question *q);
};

struct node_questions {
    struct node_questions_cfg cfg;
    LIST_HEAD(, node_question) list;
    int n;
    int64_t last_id;
};

void node_questions_init(struct node_questions *all, const struct node_questions_cfg *cfg);
void node_questions_done(struct node_questions *all); /* drops all questions */
bool node_questions_full(const struct node_questions *all);

/* Register a question, zeroed except for caller, and assign an id > 0 to it. */
void node_question_add(struct node_questions *all, struct node_question *q);
/* Remove a question and free what it holds, but not the question itself. */
void node_question_done(struct node_question *q);

/* Return 1 to ask the node that has ranks first to first + v->slots - 1, 0 not to ask it, or
 * -errno. Called also for nodes whose workers have all ended, which are not asked. */
typedef int node_question_wants_f(struct node_question *q, const struct rdzv_view *v, int first);

/* Choose the nodes, and start the time limit. 0; -ENOENT: no node was chosen; -ENOMEM; or the error
 * of wants(). */
int node_question_begin(struct node_question *q, node_question_wants_f *wants, uint64_t limit_ns);
/* Return the session of the i-th of the q->n chosen nodes, none of which has answered yet. */
struct session *node_question_session(const struct node_question *q, int i);

struct node_question *node_question_of_id(const struct node_questions *all, int64_t id);
/* Return the node of a session that has yet to answer question `id`, and the question; NULL: the
 * answer is late, or was not asked for. */
struct asked_node *node_questions_find(const struct node_questions *all, int64_t id,
                                       const struct session *s, struct node_question **q);
/* The node has answered; may end the question and free it. */
void node_question_answered(struct node_question *q, struct asked_node *a);
/* The session is about to be freed. Questions end later, from the loop. */
void node_questions_forget(struct node_questions *all, const struct session *s);

#endif
