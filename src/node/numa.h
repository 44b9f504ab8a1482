/* --numa-binding: binds each worker to the CPUs and the memory near its GPU, as torchrun does with
 * numactl. Reads /sys, in less than a millisecond, and only if the option is given. Src:
 * torch 2.13.0, torch.numa; Documentation/ABI/stable/sysfs-devices-node, sysfs-devices-system-cpu.
 */
#ifndef DD_NODE_NUMA_H
#define DD_NODE_NUMA_H

#include "node/cpu.h"

enum node_numa_mode {
    NODE_NUMA_NONE,
    NODE_NUMA_NODE,         /* the NUMA node of the GPU */
    NODE_NUMA_SOCKET,       /* all NUMA nodes of the GPU's socket */
    NODE_NUMA_EXCLUSIVE,    /* an equal share of the NUMA node's cores for each of its GPUs */
    NODE_NUMA_CORE_COMPLEX, /* the cores of one last-level cache of the NUMA node */
};

enum { NODE_NUMA_MAX = 1024 };

/* NUMA nodes whose memory to prefer, one bit each, as set_mempolicy(2) expects. */
struct node_memory {
    unsigned long mask[NODE_NUMA_MAX / (8 * sizeof(unsigned long))];
    int n; /* number of NUMA nodes in mask */
};

enum node_numa_mode node_numa_mode(const char *name); /* "node", "socket", ...; NULL: none */

struct node_numa_query {
    const struct node_cpus *cpus; /* CPUs that the job may use */
    const char *root;             /* as in gpu.h */
    char *const *env;
    enum node_numa_mode mode;
    int nworkers;
};

/* Place worker i near GPU i; without GPUs, distribute the workers over the NUMA nodes in order.
 * *cpus (q->cpus->size bytes) becomes a subset of q->cpus. -EINVAL with a message: there is no GPU
 * i or no usable CPU near it, or too few cores for NODE_NUMA_EXCLUSIVE. */
int node_numa_place(const struct node_numa_query *q, int i, cpu_set_t *cpus,
                    struct node_memory *memory, struct dd_err *err);

#endif
