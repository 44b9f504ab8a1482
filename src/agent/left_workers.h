/* Workers that have exited with 0 while others of this node still run: reported to the daemon,
 * which names the ranks that run much longer than the others. */
#ifndef DD_AGENT_LEFT_WORKERS_H
#define DD_AGENT_LEFT_WORKERS_H

#include "agent/features.h"

extern const struct round_feature left_workers_feature;

#endif
