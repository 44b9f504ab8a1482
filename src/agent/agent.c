#include "agent/agent.h"

#include "agent/error_files.h"
#include "agent/health_check.h"
#include "agent/held_ports.h"
#include "agent/inner.h"
#include "agent/locate_etcd.h"
#include "base/io.h"
#include "net/addr.h"
#include "net/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- messages ---- */

static int parse_endpoint(struct net_addr *ret, const char *text)
{
    char host[256];
    uint16_t port;
    int rc = net_split_hostport(text, host, sizeof(host), &port, NULL);
    return rc < 0 ? rc : net_addr_parse(ret, host, port);
}

/* The daemon asks whether the user of this job owns a connection from this machine. */
static void on_whois(struct agent *a, const struct msg_whois *m)
{
    struct net_addr local;
    struct net_addr remote;
    uid_t other;
    bool ok = parse_endpoint(&local, m->local) == 0 && parse_endpoint(&remote, m->remote) == 0 &&
              net_peer_own(a->peer, &local, &remote, &other) == 0;
    agent_send(a, MSG(WHOIS_REPLY, .id = m->id, .ok = ok));
}

/* Log the first line of the report; write the remaining lines below it without a prefix. */
static void report_to_user(const struct agent *a, const struct msg_finish *m)
{
    struct dd_err err = {0};
    const char *rest = strchrnul(m->text, '\n');
    struct dd_log patient = *a->cfg->log; /* the job has ended: a slow console delays nothing */
    patient.waits_ms = 0;
    if (m->text[0] != '\0')
        dd_log(&patient, DD_LOG_ERR, "%.*s", (int)(rest - m->text), m->text);
    if (rest[0] != '\0' && rest[1] != '\0')
        (void)dd_write_full(a->cfg->log->fd, rest + 1, strlen(rest + 1));
    if (a->cfg->report != NULL &&
        dd_write_file(a->cfg->report, m->detail, strlen(m->detail), &err) < 0)
        dd_log(a->cfg->log, DD_LOG_ERR, "--report=%s: %s", a->cfg->report, err.text);
}

static void agent_on_message(struct agent *a, const struct msg *m)
{
    a->message = m;
    switch (m->type) {
    case MSG_STATUS:
        dd_log(a->cfg->log, DD_LOG_NOTICE, "%s", m->status.text);
        break;
    case MSG_REFUSE:
        agent_because(a, "%s", m->refuse.text);
        agent_step(a, (struct am_event){.kind = AM_REFUSE});
        break;
    case MSG_WELCOME:
        break; /* expected only from a daemon that uplink_ask_found() has asked */
    case MSG_PLAN:
        agent_step(a, (struct am_event){.kind = AM_PLAN});
        locate_etcd_changed(a);
        break;
    case MSG_ROUND_STARTED:
        agent_step(a, (struct am_event){.kind = AM_ROUND_STARTED});
        locate_etcd_changed(a);
        break;
    case MSG_PROBE_REQUEST:
        agent_step(a,
                   (struct am_event){.kind = m->probe_request.addr[0] != '\0' ? AM_REDIRECT
                                                                              : AM_PROBE_REQUEST});
        break;
    case MSG_STOP:
        agent_step(a, (struct am_event){.kind = AM_STOP,
                                        .code = m->stop.round != a->round->plan.round ? 0
                                                : m->stop.signal > 0 ? m->stop.signal
                                                                     : SIGTERM});
        break;
    case MSG_FINISH:
        if (m->finish.report)
            report_to_user(a, &m->finish);
        locate_etcd_over(a);
        agent_step(a, (struct am_event){.kind = AM_FINISH, .code = m->finish.code});
        break;
    case MSG_SIGNAL:
        if (m->signal.end_near)
            rounds_presignal(a, m->signal.signal);
        else
            signals_announce(a, m->signal.signal);
        break;
    case MSG_WHOIS:
        on_whois(a, &m->whois);
        break;
    case MSG_COMMIT:
        round_history_commit(a, &m->commit);
        break;
    case MSG_ROUND_MEMBERS:
        round_history_observe(a, &m->round_members);
        agent_step(a, (struct am_event){.kind = AM_ROUND_MEMBERS});
        break;
    case MSG_CTL_REPLY:
        control_take(a, &m->ctl_reply);
        break;
    case MSG_IDENTITY:
    case MSG_CTL_REQUEST:
    case MSG_JOIN:
    case MSG_PROBE_RESULT:
    case MSG_STARTED:
    case MSG_SUCCESS_CRITERIA_MET:
    case MSG_EXIT:
    case MSG_DONE:
    case MSG_STOP_REQUEST:
    case MSG_SIGNAL_REQUEST:
    case MSG_WHOIS_REPLY:
    case MSG_TYPE_MAX:
    default:
        break; /* messages that agents send */
    }
}

/* The daemon would wait for an answer to a message that this node cannot read: report the reason to
 * the daemon. The node leaves once the daemon has read it and the workers have exited. */
static void on_unreadable(struct agent *a, const char *what)
{
    agent_because(a, "%.90s cannot read a message from the daemon: %.260s", a->cfg->node_name,
                  what);
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", a->why);
    agent_step(a, (struct am_event){.kind = AM_UNREADABLE});
}

static void agent_on_frame(struct agent *a, const struct frame *f)
{
    DD_AUTO(msg) struct msg m = {0};
    struct dd_err err = {0};
    if (f->type == FRAME_EXCHANGE)
        rounds_take_piece(a, f);
    if (f->type != FRAME_CONTROL)
        return;
    int rc = msg_decode(&m, f->data, f->len, &err);
    if (rc == 0)
        dd_trace(a->cfg->log, DD_TRACE_LINK, "link=agent node=%s received=%s bytes=%u",
                 a->cfg->node_name, msg_type_name(m.type), f->len);
    if (rc == 0)
        agent_on_message(a, &m);
    else if (rc == -ENOMSG)
        dd_log(a->cfg->log, DD_LOG_DEBUG, "event=skip why=%s", err.text);
    else
        on_unreadable(a, err.text);
    a->message = NULL;
}

/* Callback of the uplink: the link in use has changed; NULL: there is none. */
static void on_link_change(struct agent *a)
{
    const struct link *l = a->uplink.link;
    control_lost(a);
    if (l == NULL)
        return;
    if (link_peer(l)->len >
        0) { /* the leader of another node handles --timeout, the signal before the end and etcd */
        timeout_free(a);
        endtime_free(a);
        locate_etcd_following(a);
    }
    locate_leader_stop(a);
}

/* ---- actions of the machine ---- */

/* Report the present event to the user. Most reports quote a->why. */
static void do_report(struct agent *a, int what)
{
    const struct dd_log *log = a->cfg->log;
    const char *node = a->cfg->node_name;
    const double seek_s = (double)a->cfg->rdzv_timeout_ns / 1e9;
    const char *status;
    switch ((enum am_report)what) {
    case AM_REPORT_FAIL_OVER:
        dd_log(log, DD_LOG_NOTICE, "lost the daemon: %s; %s is looking for its successor", a->why,
               node);
        break;
    case AM_REPORT_LOST:
        dd_log(log, DD_LOG_ERR, "lost the daemon on %s: %s; stopping this node's workers",
               hostlist_nth(a->cfg->alloc->nodes, 0), a->why);
        break;
    case AM_REPORT_BEFORE:
        dd_log(log, DD_LOG_NOTICE,
               "lost the daemon before the first round: %s; retrying through etcd", a->why);
        break;
    case AM_REPORT_REFUSED:
        dd_log(log, DD_LOG_ERR, "%s", a->why);
        break;
    case AM_REPORT_RETRY:
        dd_log(log, DD_LOG_DEBUG, "event=refused why=%s", a->why);
        break;
    case AM_REPORT_SEEK_LIMIT:
        status = locate_leader_status(a);
        dd_log(log, DD_LOG_ERR, "%s timed out after %.0f s: %s", node, seek_s,
               status != NULL ? status : "no daemon of this job was found");
        break;
    case AM_REPORT_PEERS_LIMIT:
        dd_log(log, DD_LOG_ERR, "%s timed out after %.0f s: another daemon of this job refused it",
               node, seek_s);
        break;
    case AM_REPORT_FAIL_OVER_LIMIT:
        dd_log(log, DD_LOG_ERR,
               "%s found no daemon of this job on the nodes of the last round within %.0f s", node,
               (double)a->cfg->rdzv.rejoin_ns / 1e9);
        break;
    case AM_REPORT_OTHER_REFUSES:
        dd_log(log, DD_LOG_NOTICE, "another daemon of this job refused this node: %s; retrying",
               a->why);
        break;
    case AM_REPORT_CANNOT_LEAD:
        dd_log(log, a->machine.state == AM_LEAVING ? DD_LOG_ERR : DD_LOG_WARN, "%s%s",
               a->machine.state != AM_LEAVING ? "cannot take the lost daemon's place: "
               : a->machine_cfg.etcd          ? "--rdzv-endpoint: "
                                              : "",
               a->why);
        break;
    }
}

static void do_locate(struct agent *a, int arg)
{
    struct dd_err err = {0};
    (void)arg;
    int rc = a->machine_cfg.etcd ? locate_etcd_start(a, &err) : locate_leader_start(a, NULL, &err);
    if (rc == 0)
        return;
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
    agent_step(a, (struct am_event){.kind = AM_FAILED, .code = 2});
}

static void do_locate_there(struct agent *a, int arg)
{
    struct dd_err err = {0};
    (void)arg;
    const bool redirected = a->message != NULL && a->message->type == MSG_PROBE_REQUEST;
    int rc = !a->machine_cfg.etcd
                 ? locate_leader_start(a, redirected ? a->message->probe_request.addr : NULL, &err)
             : redirected ? locate_etcd_start(a, &err)
                          : locate_etcd_follow(a, &err);
    if (rc == 0)
        return;
    dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
    agent_step(a, (struct am_event){.kind = AM_FAILED, .code = 2});
}

static void do_check_claim(struct agent *a, int arg)
{
    (void)arg;
    locate_etcd_check(a);
}

static void do_ask_peers(struct agent *a, int arg)
{
    (void)arg;
    locate_peers_start(a);
}

static void do_ask_members(struct agent *a, int arg)
{
    (void)arg;
    locate_members_start(a);
}

static void do_end_searches(struct agent *a, int arg)
{
    (void)arg;
    locate_peers_stop(a);
    locate_members_stop(a);
    uplink_drop_others(a);
}

static void do_start_daemon(struct agent *a, int arg)
{
    struct dd_err err = {0};
    (void)arg;
    int rc = leader_start(a, &err);
    if (rc == 0 && a->machine.epoch > 0)
        dd_log(a->cfg->log, DD_LOG_NOTICE, "%s takes over from the lost daemon", a->cfg->node_name);
    if (rc == 0)
        return;
    agent_because(a, "%s", err.text);
    const bool taken = a->machine.epoch == 0 && locate_local_start(a, &err) == 0;
    agent_step(a, (struct am_event){.kind = taken ? AM_PORT_TAKEN : AM_CANNOT_LEAD});
}

static void do_stop_daemon(struct agent *a, int arg)
{
    (void)arg;
    leader_stop(a);
}

static void do_signal_daemon(struct agent *a, int sig)
{
    if (a->leader.daemon > 0)
        (void)kill(a->leader.daemon, sig); /* AM_DAEMON_ENDED follows */
}

static void do_join(struct agent *a, int arg)
{
    (void)arg;
    locate_peers_stop(a);
    locate_members_stop(a);
    uplink_join_found(a);
}

static void do_ask(struct agent *a, int arg)
{
    (void)arg;
    uplink_ask_found(a);
}

static void do_drop(struct agent *a, int arg)
{
    (void)arg;
    uplink_drop_found(a);
}

static void do_move(struct agent *a, int arg)
{
    (void)arg;
    uplink_move(a, false);
}

static void do_move_after(struct agent *a, int arg)
{
    (void)arg;
    uplink_move(a, true);
}

static void do_give_way(struct agent *a, int arg)
{
    (void)arg;
    locate_etcd_yield(a);
}

static void do_drop_other(struct agent *a, int arg)
{
    (void)arg;
    uplink_drop_other(a);
    locate_peers_check(a);
}

static void do_drop_link(struct agent *a, int arg)
{
    (void)arg;
    uplink_drop(a);
}

static void do_send_bye(struct agent *a, int arg)
{
    (void)arg;
    if (uplink_send_bye(a, a->why) < 0)
        agent_step(a, (struct am_event){.kind = AM_LOST});
}

static void do_send_probe_result(struct agent *a, int arg)
{
    (void)arg;
    agent_send(a, MSG(PROBE_RESULT, .addr = ""));
}

static void do_start_round(struct agent *a, int arg)
{
    (void)arg;
    if (rounds_start(a, &a->message->plan) == 0)
        endtime_round(a);
    else
        agent_step(a, (struct am_event){.kind = AM_NOT_STARTED});
}

static void do_stop_workers(struct agent *a, int sig)
{
    round_stop(a->round, sig, a->cfg->grace_ms);
}

static void do_kill_workers(struct agent *a, int arg)
{
    (void)arg;
    round_stop(a->round, SIGKILL, 0);
}

static void do_drain_signals(struct agent *a, int arg)
{
    (void)arg;
    signals_drain(a);
    if (!signals_settling(a))
        agent_step(a, (struct am_event){.kind = AM_SETTLED});
}

static void do_check_health(struct agent *a, int arg)
{
    (void)arg;
    rounds_check_health(a);
}

static void do_send_done(struct agent *a, int arg)
{
    (void)arg;
    rounds_send_done(a);
}

static void do_requeue(struct agent *a, int arg)
{
    (void)arg;
    requeue_start(a, &a->message->finish);
}

static void do_leave(struct agent *a, int arg)
{
    (void)arg;
    do_end_searches(a, 0);
    locate_leader_stop(a);
    link_free(DD_TAKE(a->uplink.link)); /* control_free() answers pending ddctl requests */
}

static void do_exit(struct agent *a, int arg)
{
    (void)arg;
    event_base_loopbreak(a->base);
}

static void (*const actions[AM_ACTIONS])(struct agent *a, int arg) = {
    [AM_DO_LOCATE] = do_locate,
    [AM_DO_LOCATE_THERE] = do_locate_there,
    [AM_DO_CHECK_CLAIM] = do_check_claim,
    [AM_DO_ASK_PEERS] = do_ask_peers,
    [AM_DO_ASK_MEMBERS] = do_ask_members,
    [AM_DO_END_SEARCHES] = do_end_searches,
    [AM_DO_START_DAEMON] = do_start_daemon,
    [AM_DO_STOP_DAEMON] = do_stop_daemon,
    [AM_DO_SIGNAL_DAEMON] = do_signal_daemon,
    [AM_DO_JOIN] = do_join,
    [AM_DO_ASK] = do_ask,
    [AM_DO_DROP] = do_drop,
    [AM_DO_MOVE] = do_move,
    [AM_DO_MOVE_AFTER] = do_move_after,
    [AM_DO_GIVE_WAY] = do_give_way,
    [AM_DO_DROP_OTHER] = do_drop_other,
    [AM_DO_DROP_LINK] = do_drop_link,
    [AM_DO_SEND_BYE] = do_send_bye,
    [AM_DO_SEND_PROBE_RESULT] = do_send_probe_result,
    [AM_DO_SEND_STOP] = signals_request_stop,
    [AM_DO_START_ROUND] = do_start_round,
    [AM_DO_STOP_WORKERS] = do_stop_workers,
    [AM_DO_KILL_WORKERS] = do_kill_workers,
    [AM_DO_DRAIN_SIGNALS] = do_drain_signals,
    [AM_DO_CHECK_HEALTH] = do_check_health,
    [AM_DO_SEND_DONE] = do_send_done,
    [AM_DO_REQUEUE] = do_requeue,
    [AM_DO_REPORT] = do_report,
    [AM_DO_LEAVE] = do_leave,
    [AM_DO_EXIT] = do_exit,
};

/* ---- one step ---- */

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
        actions[next.kind](a, next.arg);
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
    if (timeout_start(a, &err) < 0) {
        dd_log(a->cfg->log, DD_LOG_ERR, "%s", err.text);
        agent_step(a, (struct am_event){.kind = AM_FAILED, .code = 2});
    }
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
    a->machine.index = c->alloc->index;
    a->step = agent_take_event;
    a->uplink.on_frame = agent_on_frame;
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
    do_leave(a, 0);
    locate_leader_free(a);
    locate_local_free(a);
    health_free(a->health);
    timeout_free(a);
    endtime_free(a);
    requeue_free(a);
    round_free(DD_TAKE(a->round)); /* before the parts below, which may call rounds_protect() */
    round_history_free(a);
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
                      .history = {.last = RDZV_MEMBERS_NONE}};
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
