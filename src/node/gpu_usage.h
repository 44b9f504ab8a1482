/* Encodes the current utilization of GPUs as text, which a child process that queried NVML writes,
 * and finds the GPUs that a worker uses. Pure. */
#ifndef DD_NODE_GPU_USAGE_H
#define DD_NODE_GPU_USAGE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { GPU_USAGE_MAX = 64 /* GPUs of a node */ };

/* A negative value means unknown. */
struct gpu_usage {
    int index;                         /* number that NVML and nvidia-smi show */
    char uuid[96];                     /* "GPU-..."; "": unknown */
    int64_t percent;                   /* share of the time in which a kernel ran, 0 to 100 */
    int64_t memory_used, memory_total; /* bytes */
    int64_t clock_mhz, clock_max_mhz;  /* clock of the streaming multiprocessors */
    uint64_t throttle; /* reasons for a low clock: bits of node/gpu_facts.h; not in the text */
};

/* Append u as a line. 0 or -ENOMEM. */
int gpu_usage_write(const struct gpu_usage *u, struct dd_buf *out);
/* Read lines of gpu_usage_write(), and skip others. Return the number of GPUs. */
int gpu_usage_read(const char *text, struct gpu_usage ret[GPU_USAGE_MAX]);

/* Find the GPUs of a worker, in the order in which CUDA numbers them. visible: the worker's
 * CUDA_VISIBLE_DEVICES; NULL: not set. shared: other workers of the node have the same value, and
 * each uses the GPU of its local rank. Return the number of GPUs; 0 for parts of GPUs (MIG). */
int gpu_usage_of_worker(const struct gpu_usage *v, int n, const char *visible, bool shared,
                        int local_rank, const struct gpu_usage *ret[GPU_USAGE_MAX]);

/* Return the GPU whose clock is the smallest fraction of its maximum, of those that have work: a
 * kernel ran at least half of the time, and the driver does not report the GPU as idle. NULL: none.
 */
const struct gpu_usage *gpu_usage_slowest(const struct gpu_usage *const *v, int n);

#endif
