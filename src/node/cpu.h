/* CPUs that this process may use, and their fair division among workers. */
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
    int count;                      /* CPUs in it */
    int online;                     /* CPUs of the machine */
    struct node_topology *topology; /* what node_cpus_share() has read; NULL: it reads each time */
};

int node_cpus_get(struct node_cpus *ret,
                  struct dd_err *err); /* sched_getaffinity, any machine size */
void node_cpus_done(struct node_cpus *c);

/* The share of worker i of n: whole consecutive CPUs of the mask, hyperthread siblings together,
 * within one NUMA node where the numbers allow: when no share gets smaller by a quarter for it.
 * root as in gpu.h (sys/devices/system/...); what it does not tell is taken as one NUMA node
 * without siblings. 0: *ret (same size as c->set, caller allocated) is filled; 1: the mask has less
 * than one CPU each, leave workers unbound; -ENOMEM. */
int node_cpus_share(const struct node_cpus *c, const char *root, int i, int n, cpu_set_t *ret);

/* True when the agent was bound to so few CPUs that n workers would fight over them although the
 * machine has more (a launcher's accidental one-core binding). */
bool node_cpus_bound_by_accident(const struct node_cpus *c, int n);

#endif
