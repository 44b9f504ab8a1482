/* History of the rounds of this node. If the daemon is lost, JOIN carries the history to its
 * successor. */
#include "agent/inner.h"

#include "base/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int round_history_record(struct agent *a, const struct msg_plan *m, struct dd_err *err)
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
        a->history.nages = restart_ages_parse(a->history.ages_ms, m->spent, err);
        a->history.ages_at_ns = dd_now_ns();
        rc = a->history.nages < 0 ? a->history.nages : 0;
        a->history.nages = rc < 0 ? 0 : a->history.nages;
    }
    dd_strv_done(&a->history.addrs);
    for (size_t i = 0; rc == 0 && i < m->addrs->n && i <= RDZV_SUCCESSORS; i++)
        rc = dd_strv_push(&a->history.addrs, m->addrs->v[i]);
    if (rc < 0)
        return rc;
    free(a->history.members);
    a->history.members = DD_TAKE(members);
    rdzv_members_clear(&a->history.last);
    a->history.last = last;
    a->machine.index = last.index[a->round->plan.node_rank];
    last = RDZV_MEMBERS_NONE;
    return 0;
}

/* A spare gets no vote: `members` and `committed` stay. */
void round_history_observe(struct agent *a, const struct msg_round_members *m)
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
    dd_strv_done(&a->history.addrs);
    a->history.addrs = addrs;
    addrs = (struct dd_strv){0};
    rdzv_members_clear(&a->history.last);
    a->history.last = last;
    last = RDZV_MEMBERS_NONE;
}

void round_history_commit(struct agent *a, const struct msg_commit *m)
{
    if (m->round != a->round->plan.round || a->history.members == NULL)
        return;
    char *committed = strdup(a->history.members);
    if (committed == NULL)
        return;
    free(a->history.committed);
    a->history.committed = committed;
}

void round_history_write_ages(const struct agent *a, struct dd_buf *out)
{
    uint64_t ages[RESTART_AGES_MAX];
    for (int i = 0; i < a->history.nages; i++)
        ages[i] = a->history.ages_ms[i] + (dd_now_ns() - a->history.ages_at_ns) / DD_NS_PER_MS;
    (void)restart_ages_format(out, ages, a->history.nages);
}

void round_history_free(struct agent *a)
{
    free(a->history.members);
    free(a->history.committed);
    rdzv_members_clear(&a->history.last);
    dd_strv_done(&a->history.addrs);
}
