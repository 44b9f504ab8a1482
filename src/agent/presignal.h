/* The signal before the allocation ends: each worker gets it once. Workers that have only just been
 * started get it when they have installed a handler. */
#ifndef DD_AGENT_PRESIGNAL_H
#define DD_AGENT_PRESIGNAL_H

#include "agent/features.h"

extern const struct round_feature presignal_feature;

#endif
