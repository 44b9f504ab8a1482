/* Reads the usage of the GPUs of this node from NVML, in a child: NVML may hang on a failed GPU. At
 * most one child runs, and after one that failed or timed out, the round starts no other. */
#ifndef DD_AGENT_GPU_QUERY_H
#define DD_AGENT_GPU_QUERY_H

#include "agent/round.h"
#include "node/gpu_usage.h"

struct gpu_query;

/* r is borrowed. then() is called from the loop after a query. NULL: out of memory. */
struct gpu_query *gpu_query_new(const struct round *r, void (*then)(void *arg), void *arg);
/* Start a query, unless one is pending. False: there will be no answer in time, and then() is not
 * called for this query. */
bool gpu_query_start(struct gpu_query *q);
/* Return the GPUs, *n of them, lent until the next query; none if NVML has not answered. */
const struct gpu_usage *gpu_query_result(const struct gpu_query *q, int *n);
void gpu_query_free(struct gpu_query *q); /* kills the child; NULL is fine */

#endif
