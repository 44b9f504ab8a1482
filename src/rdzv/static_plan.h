/* The plan of a job as one node can foresee it, from the list of nodes and the number of workers.
 * Pure. */
#ifndef DD_RDZV_STATIC_PLAN_H
#define DD_RDZV_STATIC_PLAN_H

#include "base/err.h"
#include "hostlist/hostlist.h"
#include "rdzv/plan.h"

struct static_plan {
    const struct hostlist *nodes; /* in rank order */
    int nnodes;
    const int *sizes; /* [nnodes] workers of each node; NULL: `size` on every node */
    int size;
    int node_rank;
};

/* Set nodes, sizes and ranks of the zeroed *p; the caller sets addresses and ports. -ENOMEM with a
 * message; call plan_clear(p) in any case. */
int static_plan_make(struct plan *p, const struct static_plan *f, struct dd_err *err);
/* Change the plan to that of another node. */
void static_plan_select(struct plan *p, int node_rank);

/* Convert a list of tasks to nodes: a name repeated in sequence is one node with as many workers.
 * The caller frees both. 0 or -ENOMEM. */
int static_plan_group(struct hostlist **ret_nodes, int **ret_sizes, const struct hostlist *tasks);

#endif
