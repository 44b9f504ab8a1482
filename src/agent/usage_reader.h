/* Answers USAGE_REQUEST: what the workers of this node and their GPUs use, and the last lines of
 * the workers' output. Nothing is read before the daemon asks. */
#ifndef DD_AGENT_USAGE_READER_H
#define DD_AGENT_USAGE_READER_H

#include "agent/features.h"

extern const struct round_feature usage_reader_feature;

#endif
