/* Several agents of one host, started with the same --rdzv-endpoint and no --node-rank: each
 * agent takes the endpoint for its own host. The agent that binds the port starts the daemon. The
 * others join the daemon if it belongs to this job. */
#ifndef DD_AGENT_LOCATE_LOCAL_H
#define DD_AGENT_LOCATE_LOCAL_H

#include "agent/locate.h"
#include "agent/locate_leader.h"

struct locate_local;

/* Which kind of program has had the port so far; zero-initialized: unknown. */
struct locate_local_owner {
    bool other;        /* not known to be this job's daemon: foreign, or silent so far */
    uint64_t since_ms; /* when `other` became true */
};

enum locate_local_step { LOCATE_LOCAL_WAIT, LOCATE_LOCAL_LEAD, LOCATE_LOCAL_GIVE_UP };

/* Decide what to do, given the present listener of the port. Pure. The time until this agent gives
 * up begins when another program is first found: until then, this job's daemon may have had the
 * port. */
enum locate_local_step locate_local_judge(struct locate_local_owner *o, enum link_listener listener,
                                          uint64_t now_ms);

int locate_local_new(struct locate_local **ret, struct locate *where,
                     const struct locate_leader *leader);
/* err: why this agent could not listen. Returns 0 if another agent of this host may have the port:
 * look there for the job's daemon; else err->rc. */
int locate_local_start(struct locate_local *f, struct dd_err *err);
void locate_local_free(struct locate_local *f); /* NULL is fine */

#endif
