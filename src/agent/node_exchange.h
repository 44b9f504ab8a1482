/* The agent's side of an allgather among the nodes of a round (rdzv/exchange.h). */
#ifndef DD_AGENT_NODE_EXCHANGE_H
#define DD_AGENT_NODE_EXCHANGE_H

#include "agent/features.h"
#include "rdzv/exchange.h"

extern const struct round_feature node_exchange_feature;

/* Parts by node rank, n of them, lent for the call. */
typedef void node_exchange_fn(void *arg, const struct exchange_part *parts, int n);

/* Gives this node's part of name: printable without blanks, at most EXCHANGE_NAME_MAX bytes, and
 * once at a time. done is called once, from the loop, when all nodes of the round have given
 * theirs; never when the round ends first. All parts together are at most EXCHANGE_MAX bytes; more
 * ends the job, with a sentence. */
int node_exchange_begin(const struct round *r, const char *name, const void *part, size_t len,
                        node_exchange_fn *done, void *arg, struct dd_err *err);
/* done is not called any more for what waits with arg. */
void node_exchange_drop(const struct round *r, const void *arg);

#endif
