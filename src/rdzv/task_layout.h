/* Which workers of a job somebody asks about who starts them without us (ddctl env): this process,
 * where a launcher has made it one of them, else those of a node, else all. Pure. */
#ifndef DD_RDZV_TASK_LAYOUT_H
#define DD_RDZV_TASK_LAYOUT_H

#include "alloc/alloc.h"
#include "rdzv/plan.h"

struct task_layout_input {
    const struct alloc *alloc; /* found with list_only */
    char *const *env;
    int slots;      /* workers of each node; 0: as many as the launcher starts there, else one */
    int rank, node; /* who is asked about; -1: not said */
};

struct task_layout {
    struct hostlist *nodes; /* each once, in rank order */
    struct plan plan;       /* of nodes and ranks, without addresses */
    int node;       /* the workers in question are all there; -1: all workers of all nodes */
    int first, n;   /* local ranks in question on that node */
    bool here;      /* that node is this machine */
    bool scattered; /* ranks are not dealt out node by node: only this worker's is known */
};

/* -EINVAL with a sentence: no such rank or node, or the numbers contradict each other.
 * task_layout_clear() in any case. */
int task_layout_find(struct task_layout *ret, const struct task_layout_input *in,
                     struct dd_err *err);
void task_layout_clear(struct task_layout *p);

static inline void dd_auto_task_layout(struct task_layout *p)
{
    task_layout_clear(p);
}

#endif
