/* Finds the NUMA node of each GPU. */
#ifndef DD_NODE_GPU_NUMA_H
#define DD_NODE_GPU_NUMA_H

#include "base/err.h"

/* Give the NUMA node of each GPU that CUDA_VISIBLE_DEVICES (or HIP_..., ROCR_...) selects, in the
 * order of this list; if no list is set, that of all GPUs in the order of their PCI addresses. The
 * caller frees *ret; *ret_n is 0 without GPUs. Return 0 or -ENOMEM. env, root: as in gpu.h. */
int node_gpu_numa(int **ret, int *ret_n, char *const *env, const char *root, struct dd_err *err);

#endif
