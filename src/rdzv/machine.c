/* The table of the round machine: the handler of each event in each state. The other files have the
 * handlers. */
#include "rdzv/machine_inner.h"

#include <errno.h>
#include <stdlib.h>

int rdzv_new(struct rdzv **ret, const struct rdzv_cfg *cfg, uint64_t now)
{
    struct rdzv *m = calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    m->cfg = *cfg;
    if (m->cfg.expected <= 0)
        m->cfg.expected = cfg->max_nodes;
    if (m->cfg.capacity < m->cfg.expected || m->cfg.capacity < cfg->max_nodes)
        m->cfg.capacity = m->cfg.expected > cfg->max_nodes ? m->cfg.expected : cfg->max_nodes;
    size_t n = (size_t)m->cfg.capacity;
    if (m->cfg.capacity < 1 || m->cfg.capacity > PLAN_MAX_NODES) {
        free(m);
        return -EINVAL;
    }
    m->planned = m->base = RDZV_MEMBERS_NONE;
    m->members = calloc(n, sizeof(*m->members));
    m->by_index = calloc(n, sizeof(*m->by_index));
    m->losses = calloc(n, sizeof(*m->losses));
    m->excluded = calloc(n, sizeof(*m->excluded));
    m->rest = calloc(n, sizeof(*m->rest));
    m->suspects = calloc(n, sizeof(*m->suspects));
    m->fault_index = m->unfit_end = -1;
    m->leave_at = RDZV_NEVER;
    m->progress = PROGRESS_NONE;
    m->seats = calloc(n, sizeof(*m->seats));
    m->order = calloc(n, sizeof(*m->order));
    if (cfg->restart_window_ns > 0)
        m->spent = calloc((size_t)cfg->max_restarts + 1, sizeof(*m->spent));
    if (m->members == NULL || m->by_index == NULL || m->losses == NULL || m->excluded == NULL ||
        m->rest == NULL || m->suspects == NULL || m->seats == NULL || m->order == NULL ||
        (cfg->restart_window_ns > 0 && m->spent == NULL)) {
        rdzv_free(m);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        m->by_index[i] = -1;
    m->deadline = now + (cfg->epoch > 0 ? cfg->rejoin_ns : cfg->join_ns);
    m->last_call = RDZV_NEVER;
    *ret = m;
    return 0;
}

void rdzv_free(struct rdzv *m)
{
    if (m == NULL)
        return;
    for (int i = 0; m->members != NULL && i < m->cfg.capacity; i++) {
        free(m->members[i].name);
        free(m->members[i].addr);
        free(m->members[i].unfit_why);
        free(m->members[i].unfit_check);
    }
    rdzv_free_charges(m);
    for (int i = 0; i < m->nknown; i++)
        rdzv_members_clear(&m->known[i]);
    rdzv_members_clear(&m->planned);
    rdzv_members_clear(&m->base);
    rdzv_marks_clear(&m->marks);
    free(m->members);
    free(m->by_index);
    free(m->losses);
    free(m->excluded);
    free(m->rest);
    free(m->seats);
    free(m->order);
    free(m->spent);
    free(m->names);
    free(m->actions);
    free(m);
}

static int ignore(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    (void)m;
    (void)e;
    (void)now;
    return 0;
}

/* An empty cell is an event that is invalid in that state. */
static rdzv_handler *const edge[RDZV_STATE_MAX][RDZV_EVENT_MAX] = {
    [RDZV_GATHERING] =
        {
            [RDZV_JOIN] = rdzv_on_join,
            [RDZV_STARTED] = ignore,
            [RDZV_SUCCESS_CRITERIA_MET] = ignore,
            [RDZV_EXIT] = ignore,
            [RDZV_PROGRESS] = ignore,
            [RDZV_DONE] = ignore,
            [RDZV_LOST] = rdzv_on_lost_early,
            [RDZV_STOP_REQUEST] = rdzv_on_stop_early,
            [RDZV_TIME] = rdzv_on_time,
            [RDZV_MARKS] = rdzv_on_marks,
            [RDZV_DRAIN] = rdzv_on_drain_early,
            [RDZV_PROBE_RESULT] = rdzv_on_probe_result,
        },
    [RDZV_RUNNING] =
        {
            [RDZV_JOIN] = rdzv_on_late_join,
            [RDZV_STARTED] = rdzv_on_started,
            [RDZV_SUCCESS_CRITERIA_MET] = rdzv_on_success_criteria_met,
            [RDZV_EXIT] = rdzv_on_exit,
            [RDZV_PROGRESS] = rdzv_on_progress,
            [RDZV_DONE] = rdzv_on_done,
            [RDZV_LOST] = rdzv_on_lost,
            [RDZV_STOP_REQUEST] = rdzv_on_stop_request,
            [RDZV_TIME] = rdzv_on_running_time,
            [RDZV_MARKS] = rdzv_on_marks,
            [RDZV_DRAIN] = rdzv_on_drain,
            [RDZV_PROBE_RESULT] = ignore,
        },
    [RDZV_STOPPING] =
        {
            [RDZV_JOIN] = rdzv_on_late_join,
            [RDZV_STARTED] = rdzv_on_started,
            [RDZV_SUCCESS_CRITERIA_MET] = ignore,
            [RDZV_EXIT] = rdzv_on_exit,
            [RDZV_PROGRESS] = rdzv_on_progress,
            [RDZV_DONE] = rdzv_on_done,
            [RDZV_LOST] = rdzv_on_lost,
            [RDZV_STOP_REQUEST] = rdzv_on_stop_request,
            [RDZV_TIME] = ignore,
            [RDZV_MARKS] = rdzv_on_marks,
            [RDZV_DRAIN] = rdzv_on_drain,
            [RDZV_PROBE_RESULT] = ignore,
        },
    [RDZV_FINISHED] =
        {
            [RDZV_JOIN] = rdzv_on_join_after,
            [RDZV_STARTED] = ignore,
            [RDZV_SUCCESS_CRITERIA_MET] = ignore,
            [RDZV_EXIT] = ignore,
            [RDZV_PROGRESS] = ignore,
            [RDZV_DONE] = ignore,
            [RDZV_LOST] = rdzv_on_lost_late,
            [RDZV_STOP_REQUEST] = ignore,
            [RDZV_TIME] = ignore,
            [RDZV_MARKS] = ignore,
            [RDZV_DRAIN] = ignore,
            [RDZV_PROBE_RESULT] = ignore,
        },
};

static bool event_ok(const struct rdzv *m, const struct rdzv_event *e)
{
    if ((unsigned)e->kind >= RDZV_EVENT_MAX || edge[m->state][e->kind] == NULL)
        return false;
    if (e->kind == RDZV_TIME || e->kind == RDZV_MARKS ||
        (e->kind == RDZV_STOP_REQUEST && e->id < 0))
        return true;
    if (e->id < 0 || e->id >= m->cfg.capacity)
        return false;
    return e->kind == RDZV_JOIN || m->state == RDZV_FINISHED || m->members[e->id].here;
}

int rdzv_step(struct rdzv *m, const struct rdzv_event *e, uint64_t now)
{
    return event_ok(m, e) ? edge[m->state][e->kind](m, e, now) : -EINVAL;
}

enum rdzv_state rdzv_state(const struct rdzv *m)
{
    return m->state;
}

const char *rdzv_state_name(enum rdzv_state s)
{
    static const char *const names[RDZV_STATE_MAX] = {
        [RDZV_GATHERING] = "gathering",
        [RDZV_RUNNING] = "running",
        [RDZV_STOPPING] = "stopping",
        [RDZV_FINISHED] = "finished",
    };
    return s < RDZV_STATE_MAX ? names[s] : "?";
}

const char *rdzv_event_name(enum rdzv_event_kind e)
{
    static const char *const names[RDZV_EVENT_MAX] = {
        [RDZV_JOIN] = "join",
        [RDZV_STARTED] = "started",
        [RDZV_EXIT] = "exit",
        [RDZV_SUCCESS_CRITERIA_MET] = "success-criteria-met",
        [RDZV_PROGRESS] = "progress",
        [RDZV_DONE] = "done",
        [RDZV_LOST] = "lost",
        [RDZV_STOP_REQUEST] = "stop-request",
        [RDZV_PROBE_RESULT] = "probe-result",
        [RDZV_MARKS] = "marks",
        [RDZV_DRAIN] = "drain",
        [RDZV_TIME] = "time",
    };
    return e < RDZV_EVENT_MAX ? names[e] : "?";
}

int rdzv_round(const struct rdzv *m)
{
    return m->round;
}
