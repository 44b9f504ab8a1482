/* Which NUMA node each GPU of this machine is at. */
#ifndef DD_NODE_GPU_NUMA_H
#define DD_NODE_GPU_NUMA_H

#include "base/err.h"

/* One entry per GPU that CUDA_VISIBLE_DEVICES (or HIP_..., ROCR_...) leaves, in its order; without
 * it in the order of the PCI addresses. *ret is for the caller to free; *ret_n is 0 where there are
 * none. 0 or -ENOMEM. env, root: as in gpu.h. */
int node_gpu_numa(int **ret, int *ret_n, char *const *env, const char *root, struct dd_err *err);

#endif
