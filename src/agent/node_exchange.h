/* The agent's side of an allgather among the nodes of a round (rdzv/exchange.h). */
#ifndef DD_AGENT_NODE_EXCHANGE_H
#define DD_AGENT_NODE_EXCHANGE_H

#include "rdzv/exchange.h"

struct agent;

/* Parts by node rank, n of them, lent for the call. */
typedef void agent_exchange_fn(void *arg, const struct exchange_part *parts, int n);

/* Gives this node's part of name: printable without blanks, at most EXCHANGE_NAME_MAX bytes, and
 * once at a time. done is called once, from the loop, when all nodes of the round have given
 * theirs; never when the round ends first. All parts together are at most EXCHANGE_MAX bytes; more
 * ends the job, with a sentence. */
int agent_exchange(struct agent *a, const char *name, const void *part, size_t len,
                   agent_exchange_fn *done, void *arg, struct dd_err *err);
/* What waits for arg is not called any more. */
void agent_exchange_drop(struct agent *a, const void *arg);

#endif
