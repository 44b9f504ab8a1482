/* Counts the GPUs of this node without any vendor library. */
#ifndef DD_NODE_GPU_H
#define DD_NODE_GPU_H

#include "base/err.h"

struct node_gpus {
    int count;
    const char *vendor; /* "nvidia", "amd", "intel", or "" if only a variable lists GPUs */
    char source[96]; /* source of the count: "CUDA_VISIBLE_DEVICES=0,1", "/proc/driver/nvidia/gpus"
                      */
};

/* env: environment block. root: "", or a directory with proc/, dev/ and sys/ for tests. Having no
 * GPU is not an error. */
int node_gpus_count(struct node_gpus *ret, char *const *env, const char *root, struct dd_err *err);

/* Return the number of workers that "auto", "gpu", "cpu" or a number means on this node; ncpus:
 * CPUs in the agent's mask. -EINVAL with a message: an invalid value, or "gpu" without GPUs. */
int node_nproc(const char *spec, const struct node_gpus *gpus, int ncpus, struct dd_err *err);

#endif
