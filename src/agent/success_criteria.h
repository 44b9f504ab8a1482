/* Roles that never end by themselves: once the tasks that count have succeeded on all nodes, the
 * daemon stops the others, and that is success. Here: this node's part of it is done. */
#ifndef DD_AGENT_SUCCESS_CRITERIA_H
#define DD_AGENT_SUCCESS_CRITERIA_H

#include "agent/features.h"

extern const struct round_feature success_criteria_feature;

/* All tasks of this node that count have succeeded in the round of the present plan. */
bool success_criteria_met(const struct round *r);

#endif
