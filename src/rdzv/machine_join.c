/* Members join, are excluded, and leave. */
#include "rdzv/machine_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Refuse a JOIN that does not fit the job. *ret_ok: it may join. */
static int check_join(struct rdzv *m, const struct rdzv_event *e, bool *ret_ok)
{
    *ret_ok = false;
    const bool most = e->nnodes != m->cfg.max_nodes;
    if (most || (e->min_nodes > 0 && e->min_nodes != m->cfg.min_nodes)) {
        const int theirs = most ? e->nnodes : e->min_nodes;
        return rdzv_refuse(m, e->id,
                           "%s was started for at %s %d node%s, but this job for at %s %d"
                           "\n  tip: use the same --nnodes on all nodes",
                           e->name, most ? "most" : "least", theirs, theirs == 1 ? "" : "s",
                           most ? "most" : "least", most ? m->cfg.max_nodes : m->cfg.min_nodes);
    }
    if (e->index >= m->cfg.capacity)
        return rdzv_refuse(m, e->id,
                           m->cfg.capacity == 1
                               ? "%s has node rank %d, but the job has only node rank %d"
                               : "%s has node rank %d, but the job has node ranks 0 to %d",
                           e->name, e->index, m->cfg.capacity - 1);
    if (e->index >= 0 && m->by_index[e->index] >= 0)
        return rdzv_refuse(m, e->id,
                           "node rank %d is used by both %s and %s"
                           "\n  tip: give each node its own --node-rank",
                           e->index, rdzv_member_name(m, m->by_index[e->index]), e->name);
    if ((e->epoch > m->cfg.epoch && m->state == RDZV_GATHERING && !rdzv_quorum(m)) ||
        (e->planned != NULL && e->planned->epoch > m->cfg.epoch) ||
        (e->committed != NULL && e->committed->epoch > m->cfg.epoch))
        return rdzv_refuse(m, e->id, "another daemon may continue this job");
    *ret_ok = true;
    return 0;
}

static int add_member(struct rdzv *m, const struct rdzv_event *e)
{
    struct member *p = &m->members[e->id];
    char *name = strdup(e->name);
    char *addr = strdup(e->addr);
    if (name == NULL || addr == NULL) {
        free(name);
        free(addr);
        return -ENOMEM;
    }
    free(p->name);
    free(p->addr);
    free(p->unfit_why);
    free(p->unfit_check);
    *p = (struct member){.here = true,
                         .done = true,
                         .step = -1,
                         .index = e->index,
                         .node_rank = -1,
                         .slots = e->slots,
                         .name = name,
                         .addr = addr,
                         .mark = rdzv_marks_why(&m->marks, name)};
    m->left = false;
    if (e->index >= 0)
        m->by_index[e->index] = e->id;
    m->here++;
    return 0;
}

int rdzv_exclude(struct rdzv *m, int id, const char *why)
{
    struct member *p = &m->members[id];
    const bool again = p->index >= 0 && m->excluded[p->index]; /* the node left and came back */
    if (p->unfit)
        return 0;
    p->unfit = true;
    m->unfit++;
    free(p->unfit_why);
    p->unfit_why = strdup(why);
    if (p->index >= 0)
        m->excluded[p->index] = true;
    int rc = again ? 0 : rdzv_act_text(m, RDZV_EXCLUDED, id, "%.300s", why);
    if (rc < 0)
        return rc;
    if (!m->begun &&
        m->cfg.expected - m->unfit < m->cfg.min_nodes) /* too few nodes are left: check_excluded()
                                                          ends the job with this reason */
        return 0;
    int to = rdzv_reporter(m);
    return rdzv_act_text(m, RDZV_SEND_NOTE, to, "excluded %s: %.300s", rdzv_member_name(m, id),
                         why);
}

/* End the job if excluded nodes leave too few for a round. */
static int check_excluded(struct rdzv *m, const struct rdzv_event *e)
{
    if (m->cfg.expected - m->unfit >= m->cfg.min_nodes)
        return 0;
    rdzv_fail(m, 1, "%s cannot be used: %.300s", e->name, e->unfit);
    m->unfit_end = e->id;
    if (has_text(e->check))
        m->members[e->id].unfit_check = strdup(e->check);
    return rdzv_finish(m);
}

static int rdzv_join_join(struct rdzv *m, const struct rdzv_event *e, bool *ret_in)
{
    *ret_in = false;
    if (m->members[e->id].here)
        return -EINVAL;
    int rc = check_join(m, e, ret_in);
    if (rc < 0 || !*ret_in)
        return rc;
    rc = add_member(m, e);
    if (rc == 0 && e->planned != NULL && e->planned->epoch == m->cfg.epoch &&
        e->planned->round > m->beyond)
        m->beyond = e->planned->round; /* the first node's former daemon had the same epoch */
    bool remembers = e->planned != NULL && e->planned->epoch >= 0;
    if (rc == 0 && remembers) {
        m->members[e->id].ended_well = e->ended_well;
        m->members[e->id].votes = true;
    }
    if (rc == 0 && (remembers || e->elsewhere))
        rc = rdzv_act(m, RDZV_SEND_WELCOME, e->id) == NULL ? -ENOMEM : 0;
    if (rc == 0 && e->index >= 0 && m->excluded[e->index])
        rc = rdzv_exclude(m, e->id, "it was excluded earlier");
    if (rc == 0 && has_text(e->unfit))
        rc = rdzv_exclude(m, e->id, e->unfit);
    return rc;
}

int rdzv_on_join(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    bool in;
    int rc = rdzv_join_join(m, e, &in);
    if (rc < 0 || !in)
        return rc;
    if (has_text(e->text) && !m->begun)
        return rdzv_on_stop_early(
            m, e, now); /* a node that cannot run workers ends the job before its first round */
    if (has_text(e->text))
        rc = rdzv_exclude(m, e->id, e->text);
    if (rc == 0)
        rc = rdzv_merge_history(m, e);
    if (rc == 0 && !m->begun)
        rdzv_merge_restart_ages(m, e, now);
    if (rc == 0 && !m->begun && e->charges != NULL)
        rc = rdzv_inherit_charges(m, e->charges, now);
    if (rc == 0 && has_text(e->unfit) && !m->begun)
        rc = check_excluded(m, e);
    return rc < 0 || m->state != RDZV_GATHERING ? rc : rdzv_try_start(m, now);
}

/* The job has ended: send FINISH to a node that joins late. */
int rdzv_on_join_after(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    return rdzv_send_finish(m, e->id, false);
}

/* A node that joins during a round waits for the next one. With GROW_NOW it ends the present round.
 */
int rdzv_on_late_join(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    bool in;
    if (!rdzv_is_elastic(&m->cfg) && m->here >= m->cfg.max_nodes)
        return rdzv_refuse(m, e->id, "the job has already started with %s%d node%s",
                           m->cfg.max_nodes == 1 ? "its " : "all of its ", m->cfg.max_nodes,
                           m->cfg.max_nodes == 1 ? "" : "s");
    int rc = rdzv_join_join(m, e, &in);
    if (rc < 0 || !in)
        return rc;
    if (has_text(e->text))
        rc = rdzv_exclude(m, e->id, e->text);
    if (rc == 0 && e->index == m->cfg.tie)
        rc = rdzv_inform_own_node(m);
    if (rc == 0)
        rc = rdzv_inform_spare(m, e->id);
    if (rc < 0 || m->state != RDZV_RUNNING)
        return rc;
    if (m->cfg.grow != RDZV_GROW_NOW || m->norder >= m->cfg.max_nodes || !rdzv_is_fit(m, e->id) ||
        m->members[e->id].mark != NULL) /* fill_order() leaves it out */
        return rdzv_try_leave(m, now);
    m->regroup = true;
    m->stopped_at = now;
    return rdzv_send_stop(m, SIGTERM);
}

void rdzv_remove_member(struct rdzv *m, int id)
{
    struct member *p = &m->members[id];
    p->here = false;
    m->here--;
    m->unfit -= p->unfit;
    m->started -= p->part && p->started;
    if (p->index >= 0)
        m->by_index[p->index] = -1;
    if (p->node_rank >= 0)
        m->order[p->node_rank] = -1;
}

int rdzv_on_lost_early(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    if (e->clean && m->members[e->id].index >= 0)
        rdzv_forget(&m->base, m->members[e->id].index);
    bool before = rdzv_quorum(m);
    rdzv_remove_member(m, e->id); /* the node may return before the deadline */
    int rc = before && m->begun ? rdzv_request_probe(m) : 0;
    return rc < 0 ? rc : rdzv_try_start(m, now);
}

bool rdzv_is_leader(const struct rdzv *m, int id)
{
    return m->members[id].index == m->cfg.tie;
}

bool rdzv_can_drain(struct rdzv *m, int id)
{
    struct member *p = &m->members[id];
    const bool was_fit = !p->unfit;
    if (rdzv_is_leader(m, id)) /* without a plan this node would search for another daemon, and end
                                  its own daemon during a round */
        return false;
    p->unfit = true;
    m->unfit += was_fit;
    const bool can = m->begun ? rdzv_fit(m) >= m->cfg.min_nodes && rdzv_quorum(m)
                              : m->cfg.expected - m->unfit >= m->cfg.min_nodes;
    p->unfit = !was_fit;
    m->unfit -= was_fit;
    return can;
}

/* A drain is not a failure: it costs no restart. */
int rdzv_on_drain(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    const bool known = m->members[e->id].unfit;
    int rc = rdzv_can_drain(m, e->id) ? rdzv_exclude(m, e->id, e->text) : -EINVAL;
    if (rc < 0 || known || m->state != RDZV_RUNNING || !m->members[e->id].part)
        return rc;
    m->regroup = m->drained = true;
    m->stopped_at = now;
    return rdzv_send_stop(m, SIGTERM);
}

int rdzv_on_drain_early(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    int rc = rdzv_can_drain(m, e->id) ? rdzv_exclude(m, e->id, e->text) : -EINVAL;
    return rc < 0 ? rc : rdzv_try_start(m, now);
}
