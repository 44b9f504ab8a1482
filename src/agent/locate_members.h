/* Failing over: look for another daemon on the nodes of the last round, in their order. The agent's
 * machine decides when a node searches and when it starts a daemon itself. Each daemon decides
 * whether a majority is present (rdzv/machine.h), so two daemons at once do no harm. */
#ifndef DD_AGENT_LOCATE_MEMBERS_H
#define DD_AGENT_LOCATE_MEMBERS_H

#include "agent/locate.h"
#include "agent/round_history.h"

struct locate_members;

int locate_members_new(struct locate_members **ret, const struct locate *where,
                       const struct round_history *history);
void locate_members_start(struct locate_members *m);
void locate_members_stop(struct locate_members *m);
void locate_members_free(struct locate_members *m); /* NULL is fine */

#endif
