/* NCCL's RAS: each worker has a thread that reports the state of NCCL's communicators on all ranks.
 * The workers of a node listen on a port that the agent has reserved. */
#ifndef DD_AGENT_NCCL_QUERY_H
#define DD_AGENT_NCCL_QUERY_H

#include "agent/features.h"
#include "report/nccl_ras.h"

struct nccl_query_cfg {
    bool on;
};

extern const struct round_feature nccl_query_feature;

/* Query one worker of this node, in a child, for at most limit_ns. Only the first nodes of a round
 * do so, since each answer describes the whole job. No-op while a query is pending. */
void nccl_query_start(const struct round *r, uint64_t limit_ns);
/* True if no query is pending, or if the feature takes no part in the round. */
bool nccl_query_is_ready(const struct round *r);
/* Add the last answer, and the processes of this node, to ret. -ENOMEM: a part is missing. */
int nccl_query_take(const struct round *r, struct nccl_ras *ret);
/* Return the text of the last answer without control characters, lent; "": none. */
const char *nccl_query_answer(const struct round *r);

#endif
