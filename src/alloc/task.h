/* Identifies a process that a launcher has started as one of several. Pure. */
#ifndef DD_ALLOC_TASK_H
#define DD_ALLOC_TASK_H

#include "base/err.h"

struct alloc_task {
    const char *launcher; /* for messages: "srun" */
    int rank, size;
    int local_rank, local_size; /* local_size 0: unknown */
};

/* Read the variables of srun, or of an mpiexec. 1: found, 0: no launcher has started this process,
 * -EINVAL: a variable is not a number, or the numbers contradict each other. */
int alloc_task_find(struct alloc_task *ret, char *const *env, struct dd_err *err);

#endif
