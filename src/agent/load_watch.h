/* Watches what keeps the workers of this node from computing (rdzv/rank_load.h), and sends it to
 * the daemon once, and again when it has changed. */
#ifndef DD_AGENT_LOAD_WATCH_H
#define DD_AGENT_LOAD_WATCH_H

#include "agent/features.h"

extern const struct round_feature load_watch_feature;

#endif
