/* After the loss of the daemon: who may start another one and when, how often one looks for it,
 * when one gives up. The agent and the simulator both ask here. Pure. Times are in milliseconds.
 */
#ifndef DD_RDZV_SUCCESSOR_H
#define DD_RDZV_SUCCESSOR_H

#include "rdzv/machine.h"
#include "rdzv/members.h"

#include <stdbool.h>
#include <stdint.h>

/* Is there a next round for which another daemon is worth while? */
bool successor_possible(const struct rdzv_cfg *cfg, const struct rdzv_members *last);

/* The lost daemon's node comes first (0), then the others in node rank order; -1: too far behind,
 * it only looks for another one. */
int successor_place(const struct rdzv_members *last, int index);

/* How long a place waits before it starts a daemon. again: the daemon after the lost one was lost,
 * too. */
unsigned successor_turn_ms(int place, bool again);

/* How long one looks, from the first loss on. rejoin: of the job; grace: from the stop of workers
 * to their end. */
uint64_t successor_limit_ms(const struct rdzv_members *last, uint64_t rejoin_ms, uint64_t grace_ms);

/* How long to wait after a refusal, or a look in vain: *wait is 0 at first, and is changed. */
unsigned successor_again_ms(unsigned *wait);

/* The configuration of a daemon that comes after another one, on the node `index`. grace: in the
 * unit of cfg's times. */
void successor_cfg(struct rdzv_cfg *cfg, int64_t epoch, int index, uint64_t grace);

/* How long the host (or a guest) waits before it asks all other nodes for a daemon
 * (agent/agent_machine.c): *wait is 0 at first, and is changed. */
unsigned successor_search_wait_ms(unsigned *wait, bool host);
/* The same, when there is one that did not take us. */
unsigned successor_search_refused_ms(void);

#endif
