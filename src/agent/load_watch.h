/* Reads the loads of the workers of this node (rdzv/rank_load.h), that is, what keeps them from
 * computing, and sends each load to the daemon once, and again when it has changed. */
#ifndef DD_AGENT_LOAD_WATCH_H
#define DD_AGENT_LOAD_WATCH_H

#include "agent/features.h"

extern const struct round_feature load_watch_feature;

#endif
