/* Probe the other nodes of the host list for a daemon of this job: a restarted node does not know
 * the daemons that came after the first one. The agent's machine decides when to probe. The leader
 * probes while its daemon has too few nodes, and again before that daemon starts a round with fewer
 * than all (PROBE_REQUEST), so that two daemons never run rounds side by side. A daemon that the
 * leader finds is a later one, because only the first node starts a daemon without a loss. Other
 * nodes probe while the first node has no daemon. */
#ifndef DD_AGENT_LOCATE_PEERS_H
#define DD_AGENT_LOCATE_PEERS_H

#include "agent/locate.h"

struct agent_cfg;
struct locate_peers;

bool locate_peers_possible(const struct agent_cfg *cfg);
int locate_peers_new(struct locate_peers **ret, const struct locate *where);
void locate_peers_start(struct locate_peers *p); /* begin a pass; AM_PEERS_PROBED follows */
/* Call after a daemon that was asked has answered. */
void locate_peers_check(struct locate_peers *p);
void locate_peers_stop(struct locate_peers *p);
void locate_peers_free(struct locate_peers *p); /* NULL is fine */

#endif
