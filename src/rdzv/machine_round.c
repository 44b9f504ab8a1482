/* A running round: events of its members, and its end. */
#include "rdzv/machine_inner.h"

#include "base/num.h"
#include "base/sig.h"
#include "report/causes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

static int report_restart(struct rdzv *m)
{
    char window[DD_DURATION_TEXT];
    int id = rdzv_reporter(m);
    int left = rdzv_fit(m);
    if (id < 0)
        return 0;
    if (!m->failed)
        return rdzv_act_text(m, RDZV_SEND_NOTE, id, "restarting %s",
                             m->drained ? "without drained nodes" : "with more nodes");
    if (left < m->cfg.min_nodes || !rdzv_quorum(m))
        return rdzv_act_text(m, RDZV_SEND_NOTE, id,
                             "%.300s; waiting up to %.0f s for a replacement", m->text,
                             (double)m->cfg.rejoin_ns / 1e9);
    if (m->lost_part && rdzv_is_elastic(&m->cfg))
        return rdzv_act_text(m, RDZV_SEND_NOTE, id, "%.300s; restarting on %d node%s", m->text,
                             left < m->cfg.max_nodes ? left : m->cfg.max_nodes,
                             left == 1 || m->cfg.max_nodes == 1 ? "" : "s");
    if (m->spent == NULL)
        return rdzv_act_text(m, RDZV_SEND_NOTE, id, "%.300s; restarting (%d of %d)", m->text,
                             m->restarts, m->cfg.max_restarts);
    dd_num_duration_text(window, m->cfg.restart_window_ns / NS_PER_S);
    return rdzv_act_text(m, RDZV_SEND_NOTE, id,
                         "%.300s; restarting (restart %d; --max-restarts permits %d within %s)",
                         m->text, m->restarts, m->cfg.max_restarts, window);
}

/* If too few nodes are connected to continue, the others may have a daemon: request a probe. */
int rdzv_request_probe(struct rdzv *m)
{
    int id = rdzv_own_id(m);
    if (id < 0 || rdzv_quorum(m))
        return 0;
    return rdzv_act(m, RDZV_SEND_PROBE_REQUEST, id) == NULL ? -ENOMEM : 0;
}

/* End the round. A failure costs a restart; the loss of a node costs an elastic job none. */
static int round_over(struct rdzv *m, uint64_t now)
{
    if (m->failed)
        rdzv_charge(m, now);
    if (m->end || !(m->failed || m->regroup))
        return rdzv_finish(m);
    if (m->failed && m->ruled_code != 0)
        return rdzv_end_by_rule(m, now);
    if (m->failed && rdzv_lacks_progress(m))
        return rdzv_finish(m);
    if (m->failed && !(m->lost_part && rdzv_is_elastic(&m->cfg))) {
        if (!rdzv_budget_left(m, now))
            return rdzv_finish(m);
        rdzv_spend(m, now);
    }
    int rc = report_restart(m);
    if (rc < 0 || rdzv_act(m, RDZV_DROP_STORE, -1) == NULL)
        return -ENOMEM;
    m->round = (m->round > m->beyond ? m->round : m->beyond) + 1;
    m->state = RDZV_GATHERING;
    m->deadline = now + m->cfg.rejoin_ns;
    m->last_call = RDZV_NEVER;
    rc = rdzv_request_probe(m);
    return rc < 0 ? rc : rdzv_try_start(m, now);
}

static int member_done(struct rdzv *m, int id, uint64_t now)
{
    struct member *p = &m->members[id];
    if (!p->part || p->done)
        return 0;
    p->done = true;
    return --m->running > 0 ? 0 : round_over(m, now);
}

/* Send the members' addresses to a spare, which needs these to find the next daemon after a loss.
 * The daemon's own node does not. */
int rdzv_inform_spare(struct rdzv *m, int id)
{
    const struct member *p = &m->members[id];
    if (!m->committed || !p->here || p->part || id == rdzv_own_id(m))
        return 0;
    return rdzv_act(m, RDZV_SEND_ROUND_MEMBERS, id) == NULL ? -ENOMEM : 0;
}

static int inform_spares(struct rdzv *m)
{
    int rc = 0;
    for (int id = 0; id < m->cfg.capacity && rc == 0; id++)
        rc = rdzv_inform_spare(m, id);
    return rc;
}

int rdzv_on_started(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    struct member *p = &m->members[e->id];
    if (e->round != m->round || !p->part || p->started)
        return 0;
    p->started = true;
    m->started++;
    if (m->committed || m->started < m->norder) /* a lost member stays missing */
        return 0;
    m->committed = true;
    int rc = rdzv_members_copy(&m->base, &m->planned);
    for (int k = 0; k < m->norder && rc == 0; k++)
        if (rdzv_act(m, RDZV_SEND_COMMIT, m->order[k]) == NULL)
            rc = -ENOMEM;
    if (rc == 0)
        rc = inform_spares(m);
    return rc < 0 ? rc : rdzv_try_leave(m, now);
}

/* The job ends when the required workers of all members have succeeded. Other workers, such as
 * parameter servers, need not exit. */
int rdzv_on_success_criteria_met(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (e->round != m->round || !m->members[e->id].part)
        return 0;
    m->members[e->id].criteria_met = true;
    for (int k = 0; k < m->norder; k++)
        if (m->order[k] < 0 || !m->members[m->order[k]].criteria_met)
            return 0;
    m->criteria_met = m->end = true;
    return rdzv_send_stop(m, SIGTERM);
}

int rdzv_on_done(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    if (e->round != m->round)
        return 0;
    int rc = has_text(e->unfit) && m->state == RDZV_STOPPING ? rdzv_exclude(m, e->id, e->unfit) : 0;
    return rc < 0 ? rc : member_done(m, e->id, now);
}

static int rdzv_round_rank_of(const struct rdzv *m, int id)
{
    int rank = 0;
    for (int k = 0; m->order[k] != id; k++)
        if (m->order[k] >= 0)
            rank += m->members[m->order[k]].slots;
    return rank;
}

/* Stop the round after a failure. */
static int stop_failed(struct rdzv *m, uint64_t now)
{
    if (m->state != RDZV_RUNNING)
        return 0;
    m->stopped_at = now;
    return rdzv_send_stop(m, SIGTERM);
}

/* True if the exit follows from the stop of a round without a failure: then any code is permitted.
 * A worker that exited before the stop, with a code that ends the job, ends the job even if the
 * message arrives later. */
static bool follows_own_stop(const struct rdzv *m, const struct rdzv_event *exit)
{
    const bool before = exit->at > 0 && exit->at <= m->stopped_at;
    return m->regroup && !m->failed && m->state == RDZV_STOPPING &&
           !(before && rdzv_rule_ends(m, exit->code));
}

/* Record the failure of this worker as the cause. If the whole job hung, name no rank. */
static void fail_by_exit(struct rdzv *m, const struct rdzv_event *e)
{
    const char *why = e->text != NULL ? e->text : "";
    const char *colon = why[0] != '\0' ? ": " : "";
    char how[80] = "failed";
    char code[40] = "";
    if (failure_is_job_hung(why)) {
        rdzv_fail(m, e->code, "%.200s", why);
        return;
    }
    if (e->signal > 0)
        (void)snprintf(how, sizeof(how), "was killed by signal %d (SIG%s)", e->signal,
                       dd_signal_name(e->signal));
    else
        (void)snprintf(code, sizeof(code), " (exit code %d)", e->code);
    rdzv_fail(m, e->code, "rank %d on %s %s%s%.200s%s",
              rdzv_round_rank_of(m, e->id) + e->local_rank, rdzv_member_name(m, e->id), how, colon,
              why, code);
}

int rdzv_on_exit(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    const struct member *p = &m->members[e->id];
    if (e->round != m->round || !p->part || e->local_rank >= p->slots)
        return 0;
    if (rdzv_absorbs_exit(m, e) || follows_own_stop(m, e))
        return 0;
    rdzv_apply_exit_rule(m, e);
    rdzv_suspect_exit(m, e, now);
    if (m->failed)
        return 0;
    fail_by_exit(m, e);
    return stop_failed(m, now);
}

int rdzv_on_lost(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    struct member *p = &m->members[e->id];
    if (!p->part) { /* a spare */
        rdzv_remove_member(m, e->id);
        return 0;
    }
    rdzv_fail(m, 1, "lost %s: %s", rdzv_member_name(m, e->id), e->text);
    if (!e->clean)
        rdzv_suspect(m, e->id, now, m->text);
    m->lost_part = true;
    if (p->index >= 0 && ++m->losses[p->index] >= LOSSES_MAX)
        m->excluded[p->index] = true;
    if (e->clean && p->index >= 0)
        rdzv_forget(&m->base, p->index);
    rdzv_remove_member(m, e->id);
    int rc = stop_failed(m, now);
    return rc < 0 ? rc : member_done(m, e->id, now);
}

int rdzv_on_lost_late(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (m->members[e->id].here) /* false: the node joined after the end */
        rdzv_remove_member(m, e->id);
    return 0;
}

/* A node without workers gets STOP, too, as an answer: otherwise it would leave, although the
 * workers of other nodes may need the grace period. */
static int answer_stop_request(struct rdzv *m, int id, int sig)
{
    struct rdzv_action *a = m->members[id].done ? rdzv_act(m, RDZV_SEND_STOP, id) : NULL;
    if (a == NULL)
        return m->members[id].done ? -ENOMEM : 0;
    a->signal = sig;
    return 0;
}

int rdzv_on_stop_request(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)now;
    if (e->id < 0 && m->end) /* the daemon got the same signal: the workers were signalled at the
                                agent's request */
        return 0;
    const int sig = e->signal > 0 ? e->signal : SIGTERM;
    rdzv_fail(m, rdzv_code_of_stop(e), "%s", e->text);
    m->end = true;
    int rc = rdzv_send_stop(m, sig);
    return rc < 0 || e->id < 0 ? rc : answer_stop_request(m, e->id, sig);
}
