/* --hang-timeout: workers that run but do nothing. What they were doing is reported, then they are
 * ended, which is a failure like any other. */
#ifndef DD_AGENT_HANG_WATCH_H
#define DD_AGENT_HANG_WATCH_H

#include "agent/features.h"

extern const struct round_feature hang_watch_feature;

#endif
