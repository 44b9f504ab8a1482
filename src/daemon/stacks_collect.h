/* Collects the stacks of the workers of all nodes: asks their agents, and ends when all have
 * answered or the time is over. */
#ifndef DD_DAEMON_STACKS_COLLECT_H
#define DD_DAEMON_STACKS_COLLECT_H

#include "daemon/session.h"
#include "rdzv/machine.h"
#include "report/stacks.h"

struct event_base;
struct stacks_collect;

struct stacks_collect_cfg { /* all pointers are borrowed */
    struct event_base *base;
    const struct session_set *sessions;
    struct rdzv *machine;
    const struct dd_log *log;
};

int stacks_collect_new(struct stacks_collect **ret, const struct stacks_collect_cfg *cfg);
void stacks_collect_free(struct stacks_collect *c); /* without callbacks; NULL does nothing */

/* Called with the sorted stacks, which the callback may take. */
typedef void stacks_collect_done_f(void *arg, int64_t id, struct stacks *found);

struct stacks_question {
    uint64_t limit_ns;
    bool all;                     /* also read workers without Python frames */
    bool keep;                    /* write the stacks to the log directories */
    bool native;                  /* also read native frames */
    const char *node;             /* read this node only; NULL or "": all nodes */
    const struct rank_set *ranks; /* read these ranks only; NULL or empty: all ranks */
    const struct session *caller; /* forget the question when this session is gone; NULL: none */
    stacks_collect_done_f *done;
    void *arg;
    /* Called in place of done() if there is no result; NULL: nothing to free. */
    void (*free_arg)(void *arg);
};

/* Return an id > 0; -ENOENT: no worker fits; -EBUSY: too many questions; -ENOMEM. done() is called
 * later, from the loop, in stacks_collect_take() or in stacks_collect_end(). */
int64_t stacks_collect_ask(struct stacks_collect *c, const struct stacks_question *q);
/* Take STACKS of an agent. */
void stacks_collect_take(struct stacks_collect *c, const struct session *s,
                         const struct msg_stacks *m);
/* The session is about to be freed. */
void stacks_collect_forget(struct stacks_collect *c, const struct session *s);
/* End a question now, with the stacks that have been read. */
void stacks_collect_end(struct stacks_collect *c, int64_t id);

#endif
