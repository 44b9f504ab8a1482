/* The times of the steps that workers mark with ddrun_step(): read from memory that they share with
 * the agent, and sent to the daemon. */
#ifndef DD_AGENT_STEP_WATCH_H
#define DD_AGENT_STEP_WATCH_H

#include "agent/features.h"

extern const struct round_feature step_watch_feature;

#endif
