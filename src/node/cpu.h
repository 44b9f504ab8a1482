/* Finds the CPUs that this process may use, and divides them among workers. */
#ifndef DD_NODE_CPU_H
#define DD_NODE_CPU_H

#include "base/err.h"

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

struct node_topology;

struct node_cpus {
    cpu_set_t *set;                 /* the agent's mask */
    size_t size;                    /* bytes of set, for the CPU_*_S macros */
    int count;                      /* number of CPUs in set */
    int online;                     /* number of CPUs of the machine */
    struct node_topology *topology; /* cache of node_cpus_share(); NULL: no cache */
};

int node_cpus_get(struct node_cpus *ret,
                  struct dd_err *err); /* reads sched_getaffinity(), for machines of any size */
void node_cpus_done(struct node_cpus *c);

/* Compute the share of worker i of n: consecutive CPUs of the mask, with all hyperthreads of a core
 * (single CPUs if there are fewer cores than workers), within one NUMA node unless a NUMA node
 * would get no worker, or the share of a worker would be 3/4 of an even share or less. root:
 * "", or a directory with sys/devices/system for tests; if files are missing, assume one NUMA node
 * and no siblings. Return 0 with *ret filled (same size as c->set, allocated by the caller); 1:
 * fewer CPUs than workers, do not bind; -ENOMEM. */
int node_cpus_share(const struct node_cpus *c, const char *root, int i, int n, cpu_set_t *ret);

/* True if the agent is bound to fewer CPUs than n workers need although the machine has more, as by
 * a launcher's default binding to one core. */
bool node_cpus_bound_by_accident(const struct node_cpus *c, int n);

#endif
