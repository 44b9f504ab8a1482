/* Selects workers for ddctl env, which prints the environment of workers that ddrun does not start:
 * this process, if a launcher has started it as a worker, else the workers of a node, else all
 * workers. Pure. */
#ifndef DD_RDZV_TASK_LAYOUT_H
#define DD_RDZV_TASK_LAYOUT_H

#include "alloc/alloc.h"
#include "rdzv/plan.h"

struct task_layout_input {
    const struct alloc *alloc; /* result of alloc_find() with list_only */
    char *const *env;
    int slots;      /* workers of each node; 0: as many as the launcher starts there, or one */
    int rank, node; /* requested rank or node; -1: not given */
};

struct task_layout {
    struct hostlist *nodes; /* the nodes, each once, in rank order */
    struct plan plan;       /* nodes and ranks, without addresses */
    int node;               /* node of the workers; -1: all workers of all nodes */
    int first, n;           /* first local rank and number of the workers on that node */
    bool here;              /* `node` is this machine */
    bool scattered; /* ranks are not assigned node by node: only the ranks of this worker are known
                     */
};

/* 0, or with a message -ENOMEM or -EINVAL (no such rank or node, or contradictory numbers). Call
 * task_layout_clear() in any case. */
int task_layout_find(struct task_layout *ret, const struct task_layout_input *in,
                     struct dd_err *err);
void task_layout_clear(struct task_layout *p);

static inline void dd_auto_task_layout(struct task_layout *p)
{
    task_layout_clear(p);
}

#endif
