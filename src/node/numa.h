/* --numa-binding: each worker on the CPUs and the memory near its GPU, as torchrun does with
 * numactl.
 *
 * What the kernel tells in /sys is read, in less than a millisecond, and only when it is asked for.
 * Src: torch 2.13.0, torch.numa; Documentation/ABI/stable/sysfs-devices-node,
 * sysfs-devices-system-cpu. */
#ifndef DD_NODE_NUMA_H
#define DD_NODE_NUMA_H

#include "node/cpu.h"

enum node_numa_mode {
    NODE_NUMA_NONE,
    NODE_NUMA_NODE,         /* the NUMA node of the GPU */
    NODE_NUMA_SOCKET,       /* all NUMA nodes of its socket */
    NODE_NUMA_EXCLUSIVE,    /* a share of the node's cores, divided among the GPUs there */
    NODE_NUMA_CORE_COMPLEX, /* the cores of one last-level cache there */
};

enum { NODE_NUMA_MAX = 1024 };

/* The memory that goes with them; a bit per NUMA node, as set_mempolicy(2) takes it. */
struct node_memory {
    unsigned long mask[NODE_NUMA_MAX / (8 * sizeof(unsigned long))];
    int n; /* nodes in it */
};

enum node_numa_mode node_numa_mode(const char *name); /* "node", "socket", ...; NULL: none */

struct node_numa_query {
    const struct node_cpus *cpus; /* the mask */
    const char *root;             /* as in gpu.h */
    char *const *env;
    enum node_numa_mode mode;
    int nworkers;
};

/* Where worker i goes: GPU i's place; without any GPU the NUMA nodes are dealt out to the workers
 * in order. *cpus (q->cpus->size bytes) is filled from the mask. -EINVAL with a sentence when there
 * is no such place. */
int node_numa_place(const struct node_numa_query *q, int i, cpu_set_t *cpus,
                    struct node_memory *memory, struct dd_err *err);

#endif
