/* The plan of a job as one node sees it before it has met another, from the list of nodes and the
 * number of workers alone. Pure. */
#ifndef DD_RDZV_STATIC_PLAN_H
#define DD_RDZV_STATIC_PLAN_H

#include "base/err.h"
#include "hostlist/hostlist.h"
#include "rdzv/plan.h"

struct static_plan {
    const struct hostlist *nodes; /* in rank order */
    int nnodes;
    const int *sizes; /* workers of each node; NULL: size */
    int size;
    int node_rank;
};

/* Nodes, sizes and ranks of the zeroed *p; addresses and ports are the caller's. -ENOMEM with a
 * sentence; plan_clear(p) in any case. */
int static_plan_make(struct plan *p, const struct static_plan *f, struct dd_err *err);
/* Turns to another node of the same plan. */
void static_plan_select(struct plan *p, int node_rank);

/* A list of tasks as nodes: a name that stands several times side by side is one node with as many
 * workers. Gives both; 0 or -ENOMEM. */
int static_plan_group(struct hostlist **ret_nodes, int **ret_sizes, const struct hostlist *tasks);

#endif
