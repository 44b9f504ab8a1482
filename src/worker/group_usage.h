/* Reads what the processes of workers use, as the kernel counts it. */
#ifndef DD_WORKER_GROUP_USAGE_H
#define DD_WORKER_GROUP_USAGE_H

#include <stdint.h>
#include <sys/types.h>

struct worker_usage {
    pid_t pid;      /* of the worker, also of its process group; 0: the worker has ended */
    char state;     /* of the worker, as in proc(5); '-': the worker has ended */
    int64_t cpu_ms; /* processor time of the group, and of children that the group has waited for */
    int64_t memory; /* resident bytes of the group */
};

/* Fill all but pid, by one pass over /proc. Return 0 or -errno. */
int worker_usage_read(struct worker_usage *v, int n);

#endif
