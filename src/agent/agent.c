#include "agent/agent.h"

#include "agent/error_files.h"
#include "agent/health_check.h"
#include "agent/inner.h"
#include "agent/locate_etcd.h"
#include "base/io.h"
#include "net/loop.h"

#include <errno.h>

/* The uplink uses another link now; a->uplink.link is NULL if it has none. */
static void on_link_change(struct agent *a)
{
    const struct link *l = a->uplink.link;
    control_lost(a);
    if (l == NULL)
        return;
    /* another node leads, and handles --timeout, the signal before the end and etcd */
    if (link_peer(l)->len > 0) {
        timeout_free(a);
        endtime_free(a);
        locate_etcd_following(a);
    }
    locate_leader_stop(a);
}

/* ---- one step of the machine ---- */

static uint64_t now_ms(void)
{
    return dd_now_ns() / DD_NS_PER_MS;
}

static void agent_set_timer(struct agent *a)
{
    const uint64_t at = agent_machine_timer(&a->machine);
    const uint64_t now = now_ms();
    const struct timeval wait = dd_timeval((at > now ? at - now : 0) * DD_NS_PER_MS);
    evtimer_del(a->timer);
    if (at != RDZV_NEVER)
        evtimer_add(a->timer, &wait);
}

/* round: of the plan that is being handled, else of the last plan; -1: no plan yet. */
static void trace_step(const struct agent *a, enum am_state from, enum am_event_kind on)
{
    const struct plan *p = &a->round->plan;
    const bool planned = a->message != NULL && a->message->type == MSG_PLAN;
    const int round = planned ? a->message->plan.round : p->nnodes > 0 ? p->round : -1;
    dd_trace(a->cfg->log, DD_TRACE_MACHINE, "machine=agent node=%s from=%s on=%s to=%s round=%d",
             a->cfg->node_name, agent_machine_state_name(from), agent_machine_event_name(on),
             agent_machine_state_name(a->machine.state), round);
}

/* An action may raise another event. The actions of that event are appended to the queue. */
static void agent_take_event(struct agent *a, struct am_event e)
{
    struct am_action next;
    const enum am_state from = a->machine.state;
    agent_machine_step(&a->machine, &e, now_ms());
    trace_step(a, from, e.kind);
    if (a->acting)
        return;
    a->acting = true;
    while (agent_machine_next(&a->machine, &next))
        agent_act(a, &next);
    a->acting = false;
    agent_set_timer(a);
}

static void agent_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct agent *a = arg;
    (void)fd;
    (void)what;
    enum am_event_kind due;
    while ((due = agent_machine_due(&a->machine, now_ms())) != AM_EVENTS)
        agent_step(a, (struct am_event){.kind = due});
    agent_set_timer(a);
}

/* ---- start and end ---- */

/* Called after the first health check. */
static void agent_begin(void *arg)
{
    struct agent *a = arg;
    struct dd_err err = {0};
    if (timeout_start(a, &err) < 0)
        agent_fail(a, err.text);
    agent_step(a, (struct am_event){.kind = a->cfg->alloc->index == 0 ? AM_LEAD : AM_SEEK});
}

static void make_machine(struct agent *a)
{
    const struct agent_cfg *c = a->cfg;
    a->machine_cfg = (struct am_cfg){.rdzv = &c->rdzv,
                                     .asks_peers = locate_peers_possible(a),
                                     .etcd = c->etcd != NULL && c->alloc->index != 0,
                                     .seek_ms = c->rdzv_timeout_ns / DD_NS_PER_MS,
                                     .rejoin_ms = c->rdzv.rejoin_ns / DD_NS_PER_MS,
                                     .grace_ms = c->grace_ms};
    agent_machine_init(&a->machine, &a->machine_cfg, &a->history.last);
    agent_machine_set_index(&a->machine, c->alloc->index);
    a->step = agent_take_event;
    a->uplink.on_frame = agent_receive;
    a->uplink.on_change = on_link_change;
}

static int agent_start(struct agent *a, struct dd_err *err)
{
    int rc = signals_new(a, err);
    if (rc == 0 && net_peer_new(&a->peer) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    control_start(a);
    if (rc == 0)
        rc = rounds_new(a, err);
    if (rc < 0)
        return rc;
    a->timer = evtimer_new(a->base, agent_on_timer, a);
    if (a->timer == NULL || locate_leader_new(a) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    rc = health_new(&a->health, a->round, err);
    if (rc == 0)
        health_check(a->health, agent_begin, a);
    return rc;
}

static void agent_done(struct agent *a)
{
    agent_act(a, &(struct am_action){.kind = AM_DO_LEAVE});
    locate_leader_free(a);
    locate_local_free(a);
    health_free(a->health);
    timeout_free(a);
    endtime_free(a);
    requeue_free(a);
    round_free(DD_TAKE(a->round)); /* before the parts below, which may call rounds_protect() */
    round_history_done(&a->history);
    leader_stop(a);
    locate_etcd_free(a);
    signals_free(a);
    if (a->timer != NULL)
        event_free(a->timer);
    control_free(a);
    net_peer_free(a->peer);
    if (a->base != NULL)
        event_base_free(a->base);
}

int agent_run(const struct agent_cfg *cfg)
{
    struct agent a = {.cfg = cfg,
                      .key_in = cfg->key_in,
                      .leader = {.end = CHILD_WATCH_NONE},
                      .signals = {.fd = -1},
                      .history = ROUND_HISTORY_NONE};
    struct dd_err err = {0};
    a.key_in.job_id = cfg->alloc->job_id;
    make_machine(&a);
    a.base = net_loop_new();
    int rc = a.base == NULL ? dd_err_set(&err, -ENOMEM, "cannot create the event loop")
                            : agent_start(&a, &err);
    if (rc < 0) {
        dd_log(cfg->log, DD_LOG_ERR, "%s", err.text);
        a.machine.code = 2;
    } else if (!a.machine.gone) {
        event_base_dispatch(a.base);
    }
    if (a.machine.code != 0)
        error_files_copy(a.round, dd_env_get_nonempty(cfg->env, "TORCHELASTIC_ERROR_FILE"));
    agent_done(&a);
    return a.machine.code;
}
