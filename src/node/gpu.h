/* GPUs of this node, counted without any vendor library. */
#ifndef DD_NODE_GPU_H
#define DD_NODE_GPU_H

#include "base/err.h"

struct node_gpus {
    int count;
    const char *vendor; /* "nvidia", "amd", "intel" or "" when only a variable speaks of them */
    char source[96];    /* where the count is from: "CUDA_VISIBLE_DEVICES=0,1",
                           "/proc/driver/nvidia/gpus" */
};

/* env: environment block. root: "" for this machine, or a directory with proc/, dev/ and sys/ in it
 * (tests). 0 GPUs is an answer, not an error. */
int node_gpus_count(struct node_gpus *ret, char *const *env, const char *root, struct dd_err *err);

/* How many workers "auto", "gpu", "cpu" or a number means on this node; ncpus = CPUs of the agent's
 * mask. -EINVAL with a sentence: not a number, no GPU with "gpu". */
int node_nproc(const char *spec, const struct node_gpus *gpus, int ncpus, struct dd_err *err);

#endif
