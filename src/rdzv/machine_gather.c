/* Gathering: decide whether enough nodes have joined, and start the next round. */
#include "rdzv/machine_inner.h"

#include "base/auto.h"
#include "base/num.h"

#include <errno.h>
#include <stdlib.h>

static int fold_names(struct rdzv *m)
{
    DD_AUTO(hostlist) struct hostlist *h = NULL;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 24);
    int rc = hostlist_new(&h);
    for (int k = 0; k < m->norder && rc == 0; k++)
        rc = hostlist_push(h, rdzv_member_name(m, m->order[k]));
    if (rc == 0)
        rc = hostlist_fold(h, &out);
    if (rc < 0)
        return rc;
    free(m->names);
    m->names = dd_buf_steal(&out);
    return m->names == NULL ? -ENOMEM : 0;
}

/* Inform the daemon's own node if the round runs without it: otherwise it would keep searching
 * for another daemon, and leave this one during a round. */
int rdzv_inform_own_node(struct rdzv *m)
{
    const int own = rdzv_own_id(m);
    return own >= 0 && !m->members[own].part && rdzv_act(m, RDZV_SEND_ROUND_STARTED, own) == NULL
               ? -ENOMEM
               : 0;
}

static int start_round(struct rdzv *m, uint64_t now)
{
    int rc = rdzv_choose(m, now);
    if (rc < 0 || !rdzv_part_quorum(m)) /* no majority yet: wait for more nodes */
        return rc;
    rc = fold_names(m);
    if (rc < 0)
        return rc;
    if (m->base.epoch < 0 &&
        m->nknown == 0) /* the job's first round: later rounds need its majority */
        rc = rdzv_members_copy(&m->base, &m->planned);
    if (rc < 0)
        return rc;
    m->begun = true;
    m->state = RDZV_RUNNING;
    m->failed = m->lost_part = m->regroup = m->drained = m->committed = m->criteria_met = false;
    m->running = m->started = m->ruled_code = 0;
    m->fault_index = -1;
    m->leave_at = RDZV_NEVER;
    rdzv_progress_begin(m);
    for (int k = 0; k < m->norder; k++) {
        struct member *p = &m->members[m->order[k]];
        p->done = p->started = p->criteria_met = false;
        p->votes = true;
        m->running++;
        if (rdzv_act(m, RDZV_SEND_PLAN, m->order[k]) == NULL)
            return -ENOMEM;
    }
    rc = rdzv_note_rests(m);
    return rc < 0 ? rc : rdzv_inform_own_node(m);
}

int rdzv_wanted(const struct rdzv *m)
{
    int most = m->cfg.expected - m->unfit;
    most = most < m->cfg.max_nodes ? most : m->cfg.max_nodes;
    if (m->begun)
        return m->cfg.min_nodes; /* after a round the remaining nodes continue at once */
    const struct rdzv_members *last = rdzv_last_known(m);
    if (last == NULL)
        return most;
    most = last->tie == m->cfg.tie
               ? last->n
               : last->n - 1; /* a daemon was lost, and its node too unless this is that node */
    return most > m->cfg.min_nodes ? most : m->cfg.min_nodes;
}

static int give_up_gathering(struct rdzv *m)
{
    DD_AUTO(buf) struct dd_buf missing = DD_BUF_INIT(1 << 20);
    char limit[DD_DURATION_TEXT];
    int fit = rdzv_fit(m);
    if (m->begun || m->nknown > 0) {
        if (!rdzv_quorum(m))
            rdzv_fail_also(
                m,
                "%d node%s connected, without a majority of the last round's %d node%s (spare "
                "nodes do not count; the other nodes of that round may continue the job)",
                fit, fit == 1 ? " is" : "s are", rdzv_last_size(m),
                rdzv_last_size(m) == 1 ? "" : "s");
        else if (fit == 0)
            rdzv_fail_also(m, "no usable node is left; the job needs at least %d",
                           m->cfg.min_nodes);
        else
            rdzv_fail_also(m, "only %d node%s left; the job needs at least %d", fit,
                           fit == 1 ? " is" : "s are", m->cfg.min_nodes);
        return rdzv_finish(m);
    }
    int rc = rdzv_missing(m, &missing);
    const char *names = dd_buf_str(&missing);
    dd_num_duration_text(limit, (m->cfg.epoch > 0 ? m->cfg.rejoin_ns : m->cfg.join_ns) / NS_PER_S);
    rdzv_fail_also(m,
                   rdzv_wanted(m) == 1
                       ? "timed out after %s waiting for %.250s (%d of %d node ready)"
                       : "timed out after %s waiting for %.250s (%d of %d nodes ready)",
                   limit, rc < 0 || names == NULL ? "?" : names, m->here, rdzv_wanted(m));
    return rc < 0 ? rc : rdzv_finish(m);
}

/* True if only the daemon was lost, after all workers had succeeded: the job has ended. */
static bool has_ended_before(const struct rdzv *m)
{
    const struct rdzv_members *last = m->begun ? NULL : rdzv_last_known(m);
    for (int k = 0; last != NULL && k < last->n; k++) {
        int id = last->index[k] < m->cfg.capacity ? m->by_index[last->index[k]] : -1;
        if (id < 0 || !m->members[id].ended_well)
            return false;
    }
    return last != NULL;
}

/* Start the round. After the loss of a daemon it costs a restart, unless the job is elastic. */
static int rdzv_gather_go(struct rdzv *m, uint64_t now)
{
    if (has_ended_before(m))
        return rdzv_finish(m);
    if (m->cfg.epoch > 0 && !m->begun && !rdzv_is_elastic(&m->cfg)) {
        if (!rdzv_budget_left(m, now)) {
            rdzv_fail_also(m, "lost the daemon, and no restart is left (--max-restarts)");
            return rdzv_finish(m);
        }
        rdzv_spend(m, now);
    }
    return start_round(m, now);
}

/* True if missing nodes may have another daemon. If members of older daemons have joined, the
 * majority rule decides instead. */
static bool may_be_elsewhere(const struct rdzv *m)
{
    return m->cfg.probes_first != 0 && !m->begun && m->nknown == 0 && m->here < m->cfg.expected;
}

/* True if the first round waits for the daemon's own node until the last call, even if enough
 * others have joined: with that node, half of the members are a majority later. */
static bool lacks_own_node(const struct rdzv *m)
{
    return m->cfg.epoch == 0 && !m->begun && m->nknown == 0 && rdzv_own_id(m) < 0;
}

/* Request a probe; RDZV_PROBE_RESULT or the end of this daemon follows. */
static int probe_first(struct rdzv *m)
{
    if (m->probing)
        return 0;
    m->probing = true;
    return rdzv_act(m, RDZV_SEND_PROBE_REQUEST, rdzv_own_id(m)) == NULL ? -ENOMEM : 0;
}

int rdzv_try_start(struct rdzv *m, uint64_t now)
{
    int fit = rdzv_fit(m);
    bool enough = fit >= m->cfg.min_nodes && rdzv_quorum(m);
    const bool all = fit >= rdzv_wanted(m) && !may_be_elsewhere(m) && !lacks_own_node(m);
    bool due = enough &&
               (all || now >= m->deadline || (m->last_call != RDZV_NEVER && now >= m->last_call));
    const bool must_probe = due && may_be_elsewhere(m) && !m->probed;
    if (must_probe && rdzv_own_id(m) >= 0)
        return probe_first(m);
    due &= !must_probe;             /* the node that has to probe is not connected */
    m->probing = m->probed = false; /* the next start needs another probe */
    if (due) {
        int rc = rdzv_gather_go(m, now);
        if (rc < 0 || m->state != RDZV_GATHERING)
            return rc;
        enough = false; /* no majority among the chosen members */
    }
    if (!enough)
        m->last_call = RDZV_NEVER;
    else if (m->last_call == RDZV_NEVER)
        m->last_call = now + m->cfg.last_call_ns;
    return now >= m->deadline ? give_up_gathering(m) : 0;
}

uint64_t rdzv_timer(const struct rdzv *m)
{
    if (m->state == RDZV_RUNNING)
        return m->leave_at;
    if (m->state != RDZV_GATHERING || m->probing)
        return RDZV_NEVER;
    const bool waits = may_be_elsewhere(m) && rdzv_own_id(m) < 0;
    return m->last_call < m->deadline && !waits ? m->last_call : m->deadline;
}

int rdzv_on_stop_early(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    m->failed = false; /* the stop replaces the failure of the last round */
    rdzv_fail(m, rdzv_code_of_stop(e), "%s", e->text);
    return rdzv_finish(m);
}

int rdzv_on_time(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)e;
    return rdzv_try_start(m, now);
}

int rdzv_on_probe_result(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)e;
    m->probed = m->probing;
    return rdzv_try_start(m, now);
}
