/* Several agents of one host, started with the same --rdzv-endpoint and no --node-rank: each
 * agent takes the endpoint for its own host. The agent that binds the port starts the daemon. The
 * others join the daemon if it belongs to this job. */
#ifndef DD_AGENT_LOCATE_LOCAL_H
#define DD_AGENT_LOCATE_LOCAL_H

#include "agent/locate.h"
#include "agent/locate_leader.h"

struct locate_local;

int locate_local_new(struct locate_local **ret, struct locate *where,
                     const struct locate_leader *leader);
/* err: why this agent could not listen. Returns 0 if another agent of this host may have the port:
 * look there for the job's daemon; else err->rc. */
int locate_local_start(struct locate_local *f, struct dd_err *err);
void locate_local_free(struct locate_local *f); /* NULL is fine */

#endif
