/* A feature of the round: records the phases of this node (report/phases.h), and sends them once
 * the daemon has asked for them (--timeline). */
#ifndef DD_AGENT_PHASE_RECORDER_H
#define DD_AGENT_PHASE_RECORDER_H

#include "agent/features.h"

struct link_times; /* net/link.h */

/* Record how this node has found the daemon. Call when JOIN has been sent on a link with these
 * times. */
void phase_recorder_joined(const struct round *r, const struct link_times *times);
/* Handle RECORD_PHASES: send the recorded phases, and further ones as they end. */
void phase_recorder_ask(const struct round *r);

extern const struct round_feature phase_recorder_feature;

#endif
