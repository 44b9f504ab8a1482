/* Horovod's rendezvous server of this node, one for each round; what it has for the other nodes
 * goes by exchanges. */
#ifndef DD_AGENT_HOROVOD_SERVER_H
#define DD_AGENT_HOROVOD_SERVER_H

#include "agent/features.h"

extern const struct round_feature horovod_feature;

#endif
