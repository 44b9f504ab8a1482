#include "rdzv/static_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void static_plan_select(struct plan *p, int node_rank)
{
    p->node_rank = node_rank;
    p->local_size = p->sizes[node_rank];
    p->first_rank = plan_first_rank(p->sizes, node_rank);
}

int static_plan_make(struct plan *p, const struct static_plan *f, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf names = DD_BUF_INIT(1 << 20);
    p->nnodes = f->nnodes;
    p->sizes = calloc((size_t)f->nnodes, sizeof(*p->sizes));
    p->nodes = hostlist_fold(f->nodes, &names) < 0 ? NULL : dd_buf_steal(&names);
    if (p->sizes == NULL || p->nodes == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (int i = 0; i < f->nnodes; i++) {
        p->sizes[i] = f->sizes != NULL ? f->sizes[i] : f->size;
        p->world_size += p->sizes[i];
    }
    static_plan_select(p, f->node_rank);
    return 0;
}

int static_plan_group(struct hostlist **ret_nodes, int **ret_sizes, const struct hostlist *tasks)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    const size_t n = hostlist_count(tasks);
    DD_AUTO(free) int *sizes = calloc(n + 1, sizeof(*sizes));
    size_t k = 0;
    if (sizes == NULL || hostlist_new(&nodes) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *name = hostlist_nth(tasks, i);
        if (k > 0 && strcmp(name, hostlist_nth(nodes, k - 1)) == 0)
            sizes[k - 1]++;
        else if (hostlist_push(nodes, name) < 0)
            return -ENOMEM;
        else
            sizes[k++] = 1;
    }
    *ret_nodes = DD_TAKE(nodes);
    *ret_sizes = DD_TAKE(sizes);
    return 0;
}
