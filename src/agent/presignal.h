/* --signal-before-end: deliver the signal once to each worker. A worker that was just started is
 * signalled once it has installed a handler. */
#ifndef DD_AGENT_PRESIGNAL_H
#define DD_AGENT_PRESIGNAL_H

#include "agent/features.h"

extern const struct round_feature presignal_feature;

#endif
