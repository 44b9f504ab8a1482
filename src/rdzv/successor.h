/* Succession after the loss of the daemon: which node starts the next one and when, how often a
 * node probes, when a node stops searching. Used by the agent's machine. Pure. Times are in
 * milliseconds.
 */
#ifndef DD_RDZV_SUCCESSOR_H
#define DD_RDZV_SUCCESSOR_H

#include "rdzv/machine.h"
#include "rdzv/members.h"

#include <stdbool.h>
#include <stdint.h>

/* True if the job may continue with another daemon. */
bool successor_possible(const struct rdzv_cfg *cfg, const struct rdzv_members *last);

/* Return the place of a node in the succession: the node of the lost daemon first (0), then the
 * others in node rank order; -1: this node starts no daemon. */
int successor_place(const struct rdzv_members *last, int index);

/* Return the delay until the node at this place starts a daemon. again: a successor was lost as
 * well. */
unsigned successor_turn_ms(int place, bool again);

/* Return the limit of the search for a daemon, counted from the first loss of a daemon. rejoin_ms:
 * time to wait for nodes after a loss; grace_ms: grace period of the workers. */
uint64_t successor_limit_ms(const struct rdzv_members *last, uint64_t rejoin_ms, uint64_t grace_ms);

/* Return the delay after a refusal or an unsuccessful probe. *wait: state, 0 at first. */
unsigned successor_again_ms(unsigned *wait);

/* Change cfg to that of a successor on node `index`. grace: grace period of the workers in ns. */
void successor_cfg(struct rdzv_cfg *cfg, int64_t epoch, int index, uint64_t grace);

/* Return the delay before a node probes the other nodes for a daemon. host: the node is the leader;
 * *wait: state, 0 at first. */
unsigned successor_search_wait_ms(unsigned *wait, bool host);
/* Return the delay before a node that another daemon has refused probes the other nodes. */
unsigned successor_search_refused_ms(void);

#endif
