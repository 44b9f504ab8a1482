/* Watches what keeps the workers of this node from computing (rdzv/rank_load.h), and sends it to
 * the daemon at first and when it has changed: an undisturbed node sends nothing more. */
#ifndef DD_AGENT_LOAD_WATCH_H
#define DD_AGENT_LOAD_WATCH_H

#include "agent/features.h"

extern const struct round_feature load_watch_feature;

#endif
