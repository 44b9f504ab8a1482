/* --requeue-on: which ends of a job let the scheduler start it again. */
#ifndef DD_AGENT_REQUEUE_H
#define DD_AGENT_REQUEUE_H

#include "base/err.h"

#include <stdbool.h>

enum { REQUEUE_PREEMPT = 1, REQUEUE_TIMEOUT = 2, REQUEUE_NODE_LOSS = 4 };
enum { REQUEUE_NEVER_CODE = 93 }; /* a worker's exit status that says so */

/* "preempt,timeout,node-loss": the bits, or -EINVAL with a sentence. */
int requeue_parse(const char *text, struct dd_err *err);

/* How the job ended. */
struct requeue_end {
    int code;          /* ddrun's exit status */
    bool node_lost;    /* a node was lost, and so the job */
    bool stopped;      /* a signal ended it */
    bool by_scheduler; /* the scheduler's signal */
    bool end_near;     /* --signal-before-end has been sent */
};

/* One of the bits of REQUEUE_*; 0: no reason; REQUEUE_ASK: only the scheduler knows why it ended
 * the job. */
enum { REQUEUE_ASK = 8 };
int requeue_reason(const struct requeue_end *e);

#endif
