/* Actions of the agent's machine, one function each. */
#include "agent/agent_parts.h"
#include "base/io.h"

#include <signal.h>

static void report_no_memory(const struct dd_log *log, const char *node, const char *why)
{
    dd_log(log, DD_LOG_ERR,
           "ddrun on %s is out of memory and leaves the job (its connection to the daemon: %s)"
           "\n  tip: raise the memory limit of ddrun (ulimit -v, or the limit of the job)",
           node, why);
}

/* Report the present event to the user. Most reports quote a->loop.why. */
static void do_report(struct agent *a, int what)
{
    const struct dd_log *log = a->loop.cfg->log;
    const char *node = a->loop.cfg->node_name;
    const double seek_s = (double)a->loop.cfg->rdzv_timeout_ns / 1e9;
    const char *status;
    char rejoin[DD_DURATION_TEXT], seek[DD_DURATION_TEXT];
    agent_loop_time_left(&a->loop, AM_FAIL_OVER_LIMIT, rejoin);
    dd_num_duration_text(seek, a->loop.cfg->rdzv_timeout_ns / DD_NS_PER_S);
    switch ((enum am_report)what) {
    case AM_REPORT_FAIL_OVER:
        dd_log(log, DD_LOG_NOTICE,
               "lost the daemon: %s; %s is looking for its successor, for up to %s", a->loop.why,
               node, rejoin);
        break;
    case AM_REPORT_LOST:
        dd_log(log, DD_LOG_ERR, "lost the daemon: %s; %s leaves the job", a->loop.why, node);
        break;
    case AM_REPORT_NO_MEMORY:
        report_no_memory(log, node, a->loop.why);
        break;
    case AM_REPORT_BEFORE:
        dd_log(log, DD_LOG_NOTICE,
               "lost the daemon before the first round: %s; retrying through etcd, for up to %s",
               a->loop.why, seek);
        break;
    case AM_REPORT_REFUSED:
        dd_log(log, DD_LOG_ERR, "%s", a->loop.why);
        break;
    case AM_REPORT_RETRY:
        dd_log(log, DD_LOG_DEBUG, "event=refused why=%s", a->loop.why);
        break;
    case AM_REPORT_SEEK_LIMIT:
        status = locate_leader_status(a->locators.leader);
        dd_log(log, DD_LOG_ERR, "%s timed out after %.0f s: %s", node, seek_s,
               status != NULL ? status : "no daemon of this job was found");
        break;
    case AM_REPORT_PEERS_LIMIT:
        dd_log(log, DD_LOG_ERR,
               "%s timed out after %.0f s: another daemon of this job refused this node%s%s", node,
               seek_s, a->refusal[0] != '\0' ? ": " : "", a->refusal);
        break;
    case AM_REPORT_FAIL_OVER_LIMIT:
        dd_log(log, DD_LOG_ERR,
               "%s found no daemon of this job on the nodes of the last round within %.0f s", node,
               ((double)dd_now_ns() / 1e6 - (double)a->loop.machine.lost_at) / 1e3);
        break;
    case AM_REPORT_OTHER_REFUSES:
        (void)snprintf(a->refusal, sizeof(a->refusal), "%s", a->loop.why);
        dd_log(log, DD_LOG_NOTICE,
               "another daemon of this job refused this node: %s; retrying, for up to %s",
               a->loop.why, seek);
        break;
    case AM_REPORT_CANNOT_LEAD:
        if (a->loop.machine.state == AM_LEAVING)
            dd_log(log, DD_LOG_ERR, "%s", a->loop.why);
        else
            dd_log(log, DD_LOG_WARN, "cannot take the lost daemon's place: %s", a->loop.why);
        break;
    }
}

static void do_locate(struct agent *a, int arg)
{
    struct dd_err err = {0};
    (void)arg;
    if (locators_start(&a->locators, &err) < 0)
        agent_fail(&a->loop, err.text);
}

static void do_locate_there(struct agent *a, int arg)
{
    struct dd_err err = {0};
    (void)arg;
    const bool redirected = a->message != NULL && a->message->type == MSG_PROBE_REQUEST;
    const char *addr = redirected ? a->message->probe_request.addr : NULL;
    if (locators_start_there(&a->locators, addr, &err) < 0)
        agent_fail(&a->loop, err.text);
}

static void do_check_claim(struct agent *a, int arg)
{
    (void)arg;
    locate_etcd_check(a->locators.etcd);
}

static void do_ask_peers(struct agent *a, int arg)
{
    (void)arg;
    locate_peers_start(a->locators.peers);
}

static void do_ask_members(struct agent *a, int arg)
{
    (void)arg;
    locate_members_start(a->locators.members);
}

static void do_end_searches(struct agent *a, int arg)
{
    (void)arg;
    locators_stop_probes(&a->locators);
    uplink_drop_others(a->uplink);
}

/* Start the daemon and the parts that only the leader runs. */
static int actions_lead(struct agent *a, struct dd_err *err)
{
    int rc = leader_start(a->leader, err);
    if (rc < 0)
        return rc;
    metrics_file_start(a->metrics_file);
    charges_file_start(a->charges_file);
    if (a->loop.cfg->profile)
        uplink_send(a->uplink, MSG(CTL_REQUEST, .id = CONTROL_ID_PROFILE, .what = "profile",
                                   .text = "follow"));
    rc = timeout_start(a->limits.timeout, err);
    if (rc == 0)
        rc = signal_before_end_start(a->limits.before_end, err);
    if (rc == 0)
        rc = node_watch_start(a->limits.node_watch, err);
    if (rc < 0) {
        uplink_drop(a->uplink); /* AM_LOST of this link would be attributed to a later daemon */
        leader_stop(a->leader);
    }
    return rc;
}

static void do_start_daemon(struct agent *a, int arg)
{
    struct dd_err err = {0};
    (void)arg;
    int rc = actions_lead(a, &err);
    if (rc == 0) {
        if (a->loop.machine.epoch > 0)
            dd_log(a->loop.cfg->log, DD_LOG_NOTICE, "%s takes over from the lost daemon",
                   a->loop.cfg->node_name);
        return;
    }
    agent_because(&a->loop, "%s", err.text);
    const bool taken = a->loop.machine.epoch == 0 &&
                       locate_local_start(a->locators.local, &err) == 0;
    agent_step(&a->loop, (struct am_event){.kind = taken ? AM_PORT_TAKEN : AM_CANNOT_LEAD});
}

static void do_stop_daemon(struct agent *a, int arg)
{
    (void)arg;
    leader_stop(a->leader);
}

static void do_signal_daemon(struct agent *a, int sig)
{
    leader_signal(a->leader, sig);
}

static void do_join(struct agent *a, int arg)
{
    (void)arg;
    locators_stop_probes(&a->locators);
    uplink_join_found(a->uplink);
}

static void do_ask(struct agent *a, int arg)
{
    (void)arg;
    uplink_ask_found(a->uplink);
}

static void do_drop(struct agent *a, int arg)
{
    (void)arg;
    uplink_drop_found(a->uplink);
}

static void do_move(struct agent *a, int arg)
{
    (void)arg;
    uplink_move(a->uplink, false);
}

static void do_move_after(struct agent *a, int arg)
{
    (void)arg;
    uplink_move(a->uplink, true);
}

static void do_give_way(struct agent *a, int arg)
{
    (void)arg;
    locate_etcd_yield(a->locators.etcd);
}

static void do_drop_other(struct agent *a, int arg)
{
    (void)arg;
    uplink_drop_other(a->uplink);
    locate_peers_check(a->locators.peers);
}

static void do_drop_link(struct agent *a, int arg)
{
    (void)arg;
    uplink_drop(a->uplink);
}

static void do_send_bye(struct agent *a, int arg)
{
    (void)arg;
    if (uplink_send_bye(a->uplink, a->loop.why) < 0)
        agent_step(&a->loop, (struct am_event){.kind = AM_LOST});
}

static void do_send_probe_result(struct agent *a, int arg)
{
    (void)arg;
    uplink_send(a->uplink, MSG(PROBE_RESULT, .addr = ""));
}

static void do_send_stop(struct agent *a, int sig)
{
    signals_request_stop(a->signals, sig);
}

static void do_start_round(struct agent *a, int arg)
{
    (void)arg;
    status_line_hide(a->status_line);
    if (rounds_start(a, &a->message->plan) < 0)
        agent_step(&a->loop, (struct am_event){.kind = AM_NOT_STARTED});
}

static void do_stop_workers(struct agent *a, int sig)
{
    rounds_drop_held(a);
    round_stop(a->round, sig, a->loop.cfg->grace_ms);
}

static void do_kill_workers(struct agent *a, int arg)
{
    (void)arg;
    rounds_drop_held(a);
    round_stop(a->round, SIGKILL, 0);
}

static void do_drain_signals(struct agent *a, int arg)
{
    (void)arg;
    signals_drain(a->signals);
    if (!signals_settling(a->signals))
        agent_step(&a->loop, (struct am_event){.kind = AM_SETTLED});
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
    const struct msg_finish *finish = &a->message->finish;
    const struct requeue_end e = {
        .code = finish->code,
        .rule = exit_rules_get(&a->loop.cfg->rdzv.exit_rules, finish->code),
        .node_lost = finish->lost,
        .stopped = finish->asked && !signals_before_end(a->signals),
        .end_near = signal_before_end_is_sent(a->limits.before_end)};
    if (leader_daemon(a->leader) > 0)
        requeue_start(a->limits.requeue, &e);
    else
        agent_step(&a->loop, (struct am_event){.kind = AM_REQUEUED});
}

static void do_leave(struct agent *a, int arg)
{
    (void)arg;
    locators_stop(&a->locators);
    uplink_close(a->uplink); /* control_free() ends pending ddctl requests */
}

static void do_exit(struct agent *a, int arg)
{
    (void)arg;
    agent_loop_exit(&a->loop);
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
    [AM_DO_SEND_STOP] = do_send_stop,
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

void agent_act(void *arg, const struct am_action *what)
{
    actions[what->kind](arg, what->arg);
}
