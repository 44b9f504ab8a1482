#include "agent/worker_gpus.h"

#include "agent/agent.h"
#include "base/strv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int worker_gpus_init(struct worker_gpus *g, int workers)
{
    *g = (struct worker_gpus){.visible = calloc((size_t)workers + 1, sizeof(*g->visible)),
                              .n = workers};
    return g->visible == NULL ? -ENOMEM : 0;
}

int worker_gpus_take_env(struct worker_gpus *g, const struct round *r, int local_rank,
                         const struct worker_spec *spec)
{
    const char *visible = dd_env_get(spec->env.v, "CUDA_VISIBLE_DEVICES");
    if (r->cfg->health.gpus == 0 || visible == NULL)
        return 0;
    free(g->visible[local_rank]);
    g->visible[local_rank] = strdup(visible);
    return g->visible[local_rank] == NULL ? -ENOMEM : 0;
}

/* True if another worker of this node sees the same GPUs. */
static bool shares_gpus(const struct worker_gpus *g, int local_rank)
{
    const char *mine = g->visible[local_rank];
    for (int i = 0; i < g->n; i++) {
        const char *other = g->visible[i];
        if (i != local_rank &&
            (mine == NULL || other == NULL ? mine == other : strcmp(mine, other) == 0))
            return true;
    }
    return false;
}

int worker_gpus_find(const struct worker_gpus *g, const struct gpu_usage *all, int n,
                     int local_rank, const struct gpu_usage *ret[GPU_USAGE_MAX])
{
    return n == 0 ? 0
                  : gpu_usage_of_worker(all, n, g->visible[local_rank], shares_gpus(g, local_rank),
                                        local_rank, ret);
}

void worker_gpus_done(struct worker_gpus *g)
{
    for (int i = 0; g->visible != NULL && i < g->n; i++)
        free(g->visible[i]);
    free(g->visible);
    *g = (struct worker_gpus){0};
}
