/* The GPUs of this node that each worker of a round uses. */
#ifndef DD_AGENT_WORKER_GPUS_H
#define DD_AGENT_WORKER_GPUS_H

#include "agent/round.h"
#include "node/gpu_usage.h"
#include "worker/spawn.h"

struct worker_gpus {
    char **visible; /* CUDA_VISIBLE_DEVICES of each worker; NULL: not set */
    int n;          /* workers */
};

int worker_gpus_init(struct worker_gpus *g, int workers); /* 0 or -ENOMEM */
/* Take the environment of a worker, if the job uses GPUs of this node. 0 or -ENOMEM. */
int worker_gpus_take_env(struct worker_gpus *g, const struct round *r, int local_rank,
                         const struct worker_spec *spec);
/* Find the GPUs of a worker among those of the node, as gpu_usage_of_worker(). */
int worker_gpus_find(const struct worker_gpus *g, const struct gpu_usage *all, int n,
                     int local_rank, const struct gpu_usage *ret[GPU_USAGE_MAX]);
void worker_gpus_done(struct worker_gpus *g);

#endif
