/* Finds how much memory this process and those of its cgroup may use. */
#ifndef DD_NODE_MEMORY_H
#define DD_NODE_MEMORY_H

#include <stdint.h>

/* Return bytes: the minimum of the machine's memory and the limits of our cgroup and its ancestors;
 * 0: unknown. root: "", or a directory with proc and sys for tests. Src: cgroup-v2.rst
 * (memory.max), cgroup-v1/memory.rst (memory.limit_in_bytes), proc(5) (meminfo). */
uint64_t node_memory_limit(const char *root);

#endif
