/* --requeue-on: ask the scheduler to requeue the job after certain ends. */
#ifndef DD_AGENT_REQUEUE_H
#define DD_AGENT_REQUEUE_H

#include "base/err.h"
#include "rdzv/exit_rules.h"

#include <stdbool.h>

enum { REQUEUE_PREEMPT = 1, REQUEUE_TIMEOUT = 2, REQUEUE_NODE_LOSS = 4, REQUEUE_BY_RULE = 16 };
enum { REQUEUE_NEVER_CODE = 93 }; /* --exit-rules has 93=no-requeue by default */

/* Parse "preempt,timeout,node-loss". Returns the bits, or -EINVAL with a message. */
int requeue_parse(const char *text, struct dd_err *err);

/* How the job ended. */
struct requeue_end {
    int code;            /* ddrun's exit status */
    enum exit_rule rule; /* action of --exit-rules for this code */
    bool node_lost;      /* the job ended because a node was lost */
    bool stopped;  /* a request stopped the job, such as a signal, --timeout or ddctl stop, other
                      than --signal-before-end */
    bool end_near; /* --signal-before-end has been sent */
};

/* Returns a bit of REQUEUE_*; 0: no requeue; REQUEUE_ASK: ask the scheduler why it ended the job.
 */
enum { REQUEUE_ASK = 8 };
int requeue_reason(const struct requeue_end *e);

struct agent_loop;
struct requeue;

int requeue_new(struct requeue **ret, struct agent_loop *loop, int on); /* on: bits of REQUEUE_* */
/* Call when the job of this node's daemon has ended. AM_REQUEUED follows. */
void requeue_start(struct requeue *r, const struct requeue_end *e);
void requeue_free(struct requeue *r); /* NULL is fine */

#endif
