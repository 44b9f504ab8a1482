/* Horovod's rendezvous server of this node, one per round. It shares keys with other nodes by
 * exchanges. */
#ifndef DD_AGENT_HOROVOD_SERVER_H
#define DD_AGENT_HOROVOD_SERVER_H

#include "agent/features.h"

extern const struct round_feature horovod_feature;

#endif
