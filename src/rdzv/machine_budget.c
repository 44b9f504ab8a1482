/* The restart budget, and whether the job is elastic. */
#include "rdzv/machine_inner.h"

bool rdzv_is_elastic(const struct rdzv_cfg *cfg)
{
    return cfg->min_nodes < cfg->max_nodes || cfg->expected > cfg->max_nodes;
}

bool rdzv_budget_left(const struct rdzv *m, uint64_t now)
{
    if (m->spent == NULL || m->restarts < m->cfg.max_restarts)
        return m->restarts < m->cfg.max_restarts;
    if (m->cfg.max_restarts == 0)
        return false;
    uint64_t oldest = m->spent[m->restarts % m->cfg.max_restarts];
    return now - oldest >= m->cfg.restart_window_ns;
}

void rdzv_spend(struct rdzv *m, uint64_t now)
{
    if (m->spent != NULL)
        m->spent[m->restarts % m->cfg.max_restarts] = now;
    m->restarts++;
}
