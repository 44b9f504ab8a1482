/* A process that a launcher has started as one of several: which of them it is. Pure. */
#ifndef DD_ALLOC_TASK_H
#define DD_ALLOC_TASK_H

#include "base/err.h"

struct alloc_task {
    const char *launcher; /* for sentences: "srun" */
    int rank, size;
    int local_rank, local_size; /* on its node; local_size 0: not said */
};

/* What srun, else an mpiexec, says in the environment. 1: found, 0: it is no such process, -EINVAL:
 * the numbers contradict each other. */
int alloc_task_find(struct alloc_task *ret, char *const *env, struct dd_err *err);

#endif
