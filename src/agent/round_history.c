/* What a node keeps of the rounds that it has taken part in. Should the daemon be lost, the next
 * one asks for it in JOIN. */
#include "agent/inner.h"

#include "base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What we say to the daemon that comes after this one, should it be lost. */
int memory_take(struct agent *a, const struct msg_plan *m, struct dd_err *err)
{
    DD_AUTO(free) char *members = strdup(m->members);
    DD_AUTO(rdzv_members) struct rdzv_members last = RDZV_MEMBERS_NONE;
    if (members == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    int rc = rdzv_members_parse(&last, members, err);
    if (rc == 0 && last.n != a->round->plan.nnodes)
        rc = dd_err_set(err, -EPROTO, "malformed plan: %d nodes, %d members", a->round->plan.nnodes,
                        last.n);
    if (rc == 0) {
        a->memory.nspent = rdzv_spent_parse(a->memory.spent_ms, m->spent, err);
        a->memory.spent_ns = dd_now_ns();
        rc = a->memory.nspent < 0 ? a->memory.nspent : 0;
        a->memory.nspent = rc < 0 ? 0 : a->memory.nspent;
    }
    dd_strv_done(&a->memory.addrs);
    for (size_t i = 0; rc == 0 && i < m->addrs->n && i <= RDZV_SUCCESSORS; i++)
        rc = dd_strv_push(&a->memory.addrs, m->addrs->v[i]);
    if (rc < 0)
        return rc;
    free(a->memory.members);
    a->memory.members = DD_TAKE(members);
    rdzv_members_clear(&a->memory.last);
    a->memory.last = last;
    a->machine.index = last.index[a->round->plan.node_rank];
    last = RDZV_MEMBERS_NONE;
    return 0;
}

/* This node gets no vote by it: `members` and `committed` stay. */
void memory_observe(struct agent *a, const struct msg_round_members *m)
{
    struct dd_err err = {0};
    DD_AUTO(rdzv_members) struct rdzv_members last = RDZV_MEMBERS_NONE;
    DD_AUTO(strv) struct dd_strv addrs = {0};
    int rc = rdzv_members_parse(&last, m->members, &err);
    for (size_t i = 0; rc == 0 && i < m->addrs->n && i <= RDZV_SUCCESSORS; i++)
        rc = dd_strv_push(&addrs, m->addrs->v[i][0] != '\0' ? m->addrs->v[i] : m->addr);
    if (rc < 0) {
        dd_log(a->cfg->log, DD_LOG_WARN, "cannot record the members of the round: %s",
               rc == -ENOMEM ? "out of memory" : err.text);
        return;
    }
    dd_strv_done(&a->memory.addrs);
    a->memory.addrs = addrs;
    addrs = (struct dd_strv){0};
    rdzv_members_clear(&a->memory.last);
    a->memory.last = last;
    last = RDZV_MEMBERS_NONE;
}

void memory_committed(struct agent *a, const struct msg_commit *m)
{
    if (m->round != a->round->plan.round || a->memory.members == NULL)
        return;
    char *committed = strdup(a->memory.members);
    if (committed == NULL)
        return;
    free(a->memory.committed);
    a->memory.committed = committed;
}

void memory_write_spent(const struct agent *a, struct dd_buf *out)
{
    uint64_t ages[RDZV_SPENT_MAX];
    for (int i = 0; i < a->memory.nspent; i++)
        ages[i] = a->memory.spent_ms[i] + (dd_now_ns() - a->memory.spent_ns) / DD_NS_PER_MS;
    (void)rdzv_spent_format(out, ages, a->memory.nspent);
}

void memory_free(struct agent *a)
{
    free(a->memory.members);
    free(a->memory.committed);
    rdzv_members_clear(&a->memory.last);
    dd_strv_done(&a->memory.addrs);
}
