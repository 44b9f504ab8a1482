/* --store=relay: the store of the round as this node's workers see it, at a port of the loopback
 * interface. Requests go to the daemon over the agent's link (store/store_relay.h). */
#ifndef DD_AGENT_RELAYED_STORE_H
#define DD_AGENT_RELAYED_STORE_H

#include "agent/features.h"

#define RELAYED_STORE_ADDR "127.0.0.1"

extern const struct round_feature relayed_store_feature;

#endif
