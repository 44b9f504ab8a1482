/* --on-hang=cuda-core: core dumps of the GPUs that hung workers use. CUDA's driver makes a named
 * pipe for each process, and writes a dump when something is written to the pipe. */
#ifndef DD_AGENT_CUDA_CORE_H
#define DD_AGENT_CUDA_CORE_H

#include "agent/features.h"

struct dd_scratch;

struct cuda_core_cfg {
    const struct dd_scratch *tmp; /* private directory of the pipes; NULL: no dumps */
};

extern const struct round_feature cuda_core_feature;

/* Ask for the dumps of all workers of this node, once in a round, and wait for them in a child. */
void cuda_core_start(const struct round *r);
/* True if no dump is pending, or if the feature takes no part in the round. */
bool cuda_core_is_ready(const struct round *r);
/* Return the lines about the dumps of the last round, lent until the next round; "": none. */
const char *cuda_core_files(const struct round *r);

#endif
