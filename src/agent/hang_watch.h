/* --hang-timeout: detect workers without progress, report their stacks and end them. The exit then
 * counts as a failure. */
#ifndef DD_AGENT_HANG_WATCH_H
#define DD_AGENT_HANG_WATCH_H

#include "agent/features.h"

extern const struct round_feature hang_watch_feature;

#endif
