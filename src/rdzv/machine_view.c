/* Views of a round: plans for nodes, status for users. */
#include "rdzv/machine_inner.h"

#include "base/auto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool rdzv_view_is_loopback(const char *addr)
{
    return strncmp(addr, "127.", 4) == 0 || strcmp(addr, "::1") == 0;
}

/* MASTER_ADDR of a member: the address at which it has reached the daemon. The daemon's own node
 * uses an address that another node has reached, preferably not a loopback one. */
static const char *master_addr(const struct rdzv *m, const struct member *p)
{
    if (p->addr[0] != '\0')
        return p->addr;
    const char *best = NULL;
    for (int k = 0; k < m->norder; k++) {
        const char *a = m->order[k] < 0 ? "" : m->members[m->order[k]].addr;
        if (a[0] != '\0' &&
            (best == NULL || (rdzv_view_is_loopback(best) && !rdzv_view_is_loopback(a))))
            best = a;
    }
    return best != NULL ? best : "127.0.0.1";
}

static int node_rank_of(const struct rdzv *m, int id)
{
    int k = 0;
    while (k < m->norder && m->order[k] != id)
        k++;
    return k;
}

int rdzv_plan(const struct rdzv *m, int id, struct plan *ret)
{
    if (m->state == RDZV_GATHERING || id < 0 || id >= m->cfg.capacity || !m->members[id].part)
        return -EINVAL;
    const struct member *p = &m->members[id];
    DD_AUTO(plan) struct plan pl = {
        .round = m->round,
        .nnodes = m->norder,
        .node_rank = node_rank_of(m, id),
        .local_size = p->slots,
        .restart_count = m->restarts,
        .max_restarts = m->cfg.max_restarts,
        .master_port = m->cfg.master_port,
        .master_addr = strdup(master_addr(m, p)),
        .sizes = calloc((size_t)m->norder + 1, sizeof(int)),
        .nodes = strdup(m->names),
    };
    if (pl.master_addr == NULL || pl.sizes == NULL || pl.nodes == NULL)
        return -ENOMEM;
    for (int k = 0; k < m->norder; k++) {
        pl.sizes[k] = m->order[k] < 0 ? 1 : m->members[m->order[k]].slots;
        pl.world_size += pl.sizes[k];
    }
    pl.first_rank = plan_first_rank(pl.sizes, pl.node_rank);
    *ret = pl;
    pl = (struct plan){0};
    return 0;
}

const struct rdzv_members *rdzv_planned(const struct rdzv *m)
{
    return &m->planned;
}

int rdzv_missing(const struct rdzv *m, struct dd_buf *out)
{
    DD_AUTO(hostlist) struct hostlist *gone = NULL;
    DD_AUTO(free) bool *here = calloc((size_t)m->cfg.capacity, sizeof(*here));
    int unnamed = 0;
    int rc = here == NULL ? -ENOMEM : hostlist_new(&gone);
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++)
        if (m->members[id].here && m->members[id].index >= 0)
            here[m->members[id].index] = true;
    for (int i = 0; i < m->cfg.expected && rc == 0; i++) {
        const char *name = m->cfg.nodes != NULL ? hostlist_nth(m->cfg.nodes, (size_t)i) : NULL;
        if (here[i])
            continue;
        if (name == NULL)
            unnamed++;
        else
            rc = hostlist_push(gone, name);
    }
    if (rc == 0 && unnamed > 0) /* some names are unknown: print the number of nodes */
        rc = dd_buf_printf(out, "%d node%s", rdzv_wanted(m) - m->here,
                           rdzv_wanted(m) - m->here == 1 ? "" : "s");
    else if (rc == 0)
        rc = hostlist_fold(gone, out);
    return rc;
}

bool rdzv_view(const struct rdzv *m, int id, struct rdzv_view *ret)
{
    if (id < 0 || id >= m->cfg.capacity || !m->members[id].here)
        return false;
    const struct member *p = &m->members[id];
    const bool round = m->state == RDZV_RUNNING || m->state == RDZV_STOPPING;
    *ret = (struct rdzv_view){.name = rdzv_member_name(m, id),
                              .index = p->index,
                              .slots = p->slots,
                              .part = round && p->part,
                              .started = p->started,
                              .done = p->done,
                              .unfit = p->unfit};
    return true;
}

int rdzv_restarts(const struct rdzv *m)
{
    return m->restarts;
}

int rdzv_code(const struct rdzv *m)
{
    return m->failed ? m->code : 0;
}

const char *rdzv_text(const struct rdzv *m)
{
    return m->failed ? m->text : "";
}

bool rdzv_may_continue(const struct rdzv *m, uint64_t now)
{
    return m->state != RDZV_FINISHED && m->begun && !m->end &&
           (rdzv_is_elastic(&m->cfg) || rdzv_budget_left(m, now));
}

bool rdzv_has_begun(const struct rdzv *m)
{
    return m->begun;
}

bool rdzv_all_finished(const struct rdzv *m)
{
    return m->finish_sent >= m->cfg.expected;
}

int rdzv_members(const struct rdzv *m)
{
    return m->here;
}

int rdzv_id_of_rank(const struct rdzv *m, int node_rank)
{
    return node_rank >= 0 && node_rank < m->norder ? m->order[node_rank] : -1;
}
