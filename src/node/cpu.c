#include "node/cpu.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int node_cpus_get(struct node_cpus *ret, struct dd_err *err)
{
    for (int n = 1024; n <= 1 << 20; n *= 2) {
        cpu_set_t *set = CPU_ALLOC(n);
        if (set == NULL)
            return dd_err_set(err, -ENOMEM, "out of memory");
        size_t size = CPU_ALLOC_SIZE(n);
        CPU_ZERO_S(size, set);
        if (sched_getaffinity(0, size, set) == 0) {
            *ret = (struct node_cpus){.set = set,
                                      .size = size,
                                      .count = CPU_COUNT_S(size, set),
                                      .online = (int)sysconf(_SC_NPROCESSORS_ONLN)};
            return 0;
        }
        CPU_FREE(set);
    }
    return dd_err_set(err, -errno, "cannot get this process's CPUs: %m");
}

void node_cpus_done(struct node_cpus *c)
{
    CPU_FREE(c->set);
    c->set = NULL;
}

int node_cpus_share(const struct node_cpus *c, const char *root, int i, int n, cpu_set_t *ret)
{
    (void)root;
    if (c->count < n)
        return 1;
    int first = (int)((long)c->count * i / n);
    int last = (int)((long)c->count * (i + 1) / n);
    CPU_ZERO_S(c->size, ret);
    for (int cpu = 0, k = 0; k < last; cpu++)
        if (CPU_ISSET_S((size_t)cpu, c->size, c->set) && k++ >= first)
            CPU_SET_S((size_t)cpu, c->size, ret);
    return 0;
}

bool node_cpus_bound_by_accident(const struct node_cpus *c, int n)
{
    return c->count < n && c->online > c->count;
}
