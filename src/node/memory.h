/* How much memory this process and those beside it may use. */
#ifndef DD_NODE_MEMORY_H
#define DD_NODE_MEMORY_H

#include <stdint.h>

/* Bytes: the smallest of the machine's memory and the limits of our cgroup and of those above it;
 * 0: not known. root: "" or where a test keeps its proc and sys. Src: cgroup-v2.rst (memory.max),
 * cgroup-v1/memory.rst (memory.limit_in_bytes), proc(5) (meminfo). */
uint64_t node_memory_limit(const char *root);

#endif
