/* Success criteria for jobs with roles that never exit, such as parameter servers: once the
 * required tasks of all nodes have succeeded, the daemon stops the others and the job has
 * succeeded. This feature reports when the required tasks of this node have succeeded. */
#ifndef DD_AGENT_SUCCESS_CRITERIA_H
#define DD_AGENT_SUCCESS_CRITERIA_H

#include "agent/features.h"

extern const struct round_feature success_criteria_feature;

/* True if all required tasks of this node have succeeded in the present round. */
bool success_criteria_met(const struct round *r);

#endif
