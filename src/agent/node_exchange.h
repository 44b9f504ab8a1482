/* The agent's side of exchanges among the nodes of a round (rdzv/exchange.h). */
#ifndef DD_AGENT_NODE_EXCHANGE_H
#define DD_AGENT_NODE_EXCHANGE_H

#include "agent/features.h"
#include "rdzv/exchange.h"

extern const struct round_feature node_exchange_feature;

/* parts: [n] by node rank, lent for the call. */
typedef void node_exchange_fn(void *arg, const struct exchange_part *parts, int n);

/* Contribute this node's part to the exchange `name`: printable, without blanks, at most
 * EXCHANGE_NAME_MAX bytes, not in use. The loop calls done once, when all nodes have contributed,
 * unless the round ends first. All parts together have at most EXCHANGE_MAX bytes; a larger
 * exchange ends the job with an error. */
int node_exchange_begin(const struct round *r, const char *name, const struct exchange_part *part,
                        node_exchange_fn *done, void *arg, struct dd_err *err);
/* Do not call done() any more for exchanges that were begun with arg. */
void node_exchange_drop(const struct round *r, const void *arg);

#endif
