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

const char *rdzv_master_addr(const struct rdzv *m, int id)
{
    const struct member *p = &m->members[id];
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

int rdzv_plan(const struct rdzv *m, int id, struct plan *ret)
{
    if (m->state == RDZV_GATHERING || id < 0 || id >= m->cfg.capacity || !m->members[id].part)
        return -EINVAL;
    const struct member *p = &m->members[id];
    DD_AUTO(plan) struct plan pl = {
        .round = m->round,
        .nnodes = m->norder,
        .node_rank = p->node_rank,
        .local_size = p->slots,
        .restart_count = m->restarts,
        .max_restarts = m->cfg.max_restarts,
        .master_port = m->cfg.master_port,
        .master_addr = strdup(rdzv_master_addr(m, id)),
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

int rdzv_node_rank(const struct rdzv *m, int id)
{
    return m->members[id].node_rank;
}

const struct rdzv_members *rdzv_planned(const struct rdzv *m)
{
    return &m->planned;
}

/* Collect the names of the nodes that have not joined. *ret_unnamed: the number of further ones. */
static int missing_names(const struct rdzv *m, struct hostlist **ret, int *ret_unnamed)
{
    DD_AUTO(free) bool *here = calloc((size_t)m->cfg.capacity, sizeof(*here));
    *ret_unnamed = 0;
    int rc = here == NULL ? -ENOMEM : hostlist_new(ret);
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++)
        if (m->members[id].here && m->members[id].index >= 0)
            here[m->members[id].index] = true;
    for (int i = 0; i < m->cfg.expected && rc == 0; i++) {
        const char *name = m->cfg.nodes != NULL ? hostlist_nth(m->cfg.nodes, (size_t)i) : NULL;
        if (here[i])
            continue;
        if (name == NULL)
            ++*ret_unnamed;
        else
            rc = hostlist_push(*ret, name);
    }
    return rc;
}

int rdzv_missing(const struct rdzv *m, struct dd_buf *out)
{
    DD_AUTO(hostlist) struct hostlist *gone = NULL;
    int unnamed;
    int rc = missing_names(m, &gone, &unnamed);
    if (rc == 0 && unnamed > 0) /* some names are unknown: print the number of nodes */
        rc = dd_buf_printf(out, "%d node%s", rdzv_wanted(m) - m->here,
                           rdzv_wanted(m) - m->here == 1 ? "" : "s");
    else if (rc == 0)
        rc = hostlist_fold(gone, out);
    return rc;
}

/* ---- what the job waits for ---- */

static int seconds_until(uint64_t at, uint64_t now)
{
    const uint64_t s = at > now ? (at - now + 999999999) / 1000000000 : 0;
    return s < INT32_MAX ? (int)s : INT32_MAX;
}

static void waiting_nodes(const struct rdzv *m, uint64_t now, struct rdzv_wait *ret)
{
    DD_AUTO(hostlist) struct hostlist *gone = NULL;
    const bool rejoins = m->begun || m->cfg.epoch > 0;
    int unnamed;
    ret->what = WAITING_FOR_NODES;
    ret->ready = m->here;
    ret->wanted = rdzv_wanted(m);
    ret->limit_s = seconds_until(rejoins ? m->cfg.rejoin_ns : m->cfg.join_ns, 0);
    ret->waited_s = ret->limit_s - seconds_until(m->deadline, now);
    ret->starts_s = m->last_call < m->deadline ? seconds_until(m->last_call, now) : -1;
    if (missing_names(m, &gone, &unnamed) < 0 || unnamed > 0)
        return;
    const int n = (int)hostlist_count(gone);
    for (int i = 0; i < n; i++)
        waiting_add_name(ret->names, i, hostlist_nth(gone, (size_t)i));
    waiting_end_names(ret->names, n);
}

static void waiting_stop(const struct rdzv *m, struct rdzv_wait *ret)
{
    int n = 0;
    ret->what = WAITING_FOR_STOP;
    for (int k = 0; k < m->norder; k++) {
        if (m->order[k] < 0)
            continue;
        ret->wanted++;
        if (!m->members[m->order[k]].done)
            waiting_add_name(ret->names, n++, rdzv_member_name(m, m->order[k]));
    }
    ret->ready = ret->wanted - n;
    waiting_end_names(ret->names, n);
    const bool costs = m->failed && !(m->lost_part && rdzv_is_elastic(&m->cfg));
    ret->attempt += costs && ret->attempt < ret->attempts;
}

bool rdzv_waiting(const struct rdzv *m, uint64_t now, struct rdzv_wait *ret)
{
    *ret = (struct rdzv_wait){
        .attempt = m->restarts + 1, .attempts = m->cfg.max_restarts + 1, .starts_s = -1};
    for (int id = 0; id < m->cfg.capacity; id++)
        ret->workers += m->members[id].here ? m->members[id].slots : 0;
    if (m->state == RDZV_GATHERING)
        waiting_nodes(m, now, ret);
    else if (m->state == RDZV_STOPPING && rdzv_may_continue(m, now))
        waiting_stop(m, ret);
    else
        return false;
    return true;
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
                              .unfit = p->unfit,
                              .rested = p->index >= 0 && m->rest[p->index] != REST_NONE,
                              .mark = p->mark};
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

bool rdzv_code_is_ruled(const struct rdzv *m)
{
    return m->failed && m->ruled_code != 0;
}

bool rdzv_unfit_end(const struct rdzv *m, struct rdzv_unfit *ret)
{
    const struct member *p = m->unfit_end >= 0 ? &m->members[m->unfit_end] : NULL;
    if (p == NULL)
        return false;
    *ret = (struct rdzv_unfit){.node = rdzv_member_name(m, m->unfit_end),
                               .check = p->unfit_check != NULL ? p->unfit_check : "",
                               .why = p->unfit_why != NULL ? p->unfit_why : ""};
    return true;
}

const char *rdzv_verdict(const struct rdzv *m)
{
    return m->failed ? m->verdict : "";
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
