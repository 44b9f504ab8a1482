/* The rounds of this node: start a round for each PLAN, report its end to the daemon. */
#include "agent/agent_parts.h"
#include "agent/exit_report.h"
#include "agent/features.h"
#include "rdzv/exchange.h"

#include <errno.h>

/* ---- the end ---- */

void rounds_send_done(const struct agent *a)
{
    exit_report_done(a->round, health_unfit(a->health));
}

static void on_checked(void *arg)
{
    struct agent *a = arg;
    agent_step(&a->loop, (struct am_event){.kind = AM_CHECKED});
}

/* Skip the check after success, and while the job is being stopped. */
void rounds_check_health(struct agent *a)
{
    if (exit_report_wants_check(a->round) && a->loop.machine.sig == 0)
        health_check(a->health, on_checked, a);
    else
        on_checked(a);
}

static void on_gone(void *arg)
{
    struct agent *a = arg;
    agent_step(&a->loop, (struct am_event){.kind = AM_WORKERS_GONE});
}

/* ---- a round begins ---- */

static void send_to_daemon(void *arg, const struct msg *m)
{
    const struct agent *a = arg;
    uplink_send(a->uplink, m);
}

static int send_piece(void *arg, const void *piece, size_t len)
{
    const struct agent *a = arg;
    return uplink_send_piece(a->uplink, piece, len);
}

static bool is_settling(void *arg)
{
    const struct agent *a = arg;
    signals_drain(a->signals);
    return signals_settling(a->signals);
}

static void not_started(struct agent *a, int round, int rc, const struct dd_err *err)
{
    const bool lasting = rc == -ENOTSUP; /* a restart would fail, too */
    dd_log(a->loop.cfg->log, uplink_is_up(a->uplink) ? DD_LOG_INFO : DD_LOG_ERR, "%s",
           err->text); /* the job's report contains the reason */
    if (lasting)
        uplink_send(a->uplink, MSG(STOP_REQUEST, .text = err->text));
    exit_report_no_start(a->round, round, rc == -ENOENT ? 127 : 126, lasting ? NULL : err->text);
}

int rounds_start(struct agent *a, const struct msg_plan *m)
{
    struct dd_err err = {0};
    const struct link *up = uplink_link(a->uplink);
    const struct round_link link = {.local = link_local(up),
                                    .peer = link_peer(up),
                                    .of_first_node = locate_is_first_node(&a->locators.where)};
    int rc = round_plan(a->round, m, &link, &err);
    if (rc == 0)
        rc = round_history_record(&a->history, m, a->round->plan.nnodes, &err);
    if (rc == 0)
        agent_loop_set_index(&a->loop, a->history.last.index[a->round->plan.node_rank]);
    if (rc == 0)
        rc = round_launch(a->round, &link, &err);
    if (rc < 0) {
        not_started(a, m->round, rc, &err);
        return rc;
    }
    if (leader_daemon(a->leader) > 0)
        round_protect(a->round, leader_daemon(a->leader));
    return 0;
}

/* ---- messages ---- */

void rounds_take_piece(const struct agent *a, const struct frame *f)
{
    struct exchange_piece p;
    if (exchange_piece_decode(&p, f->data, f->len) < 0)
        dd_log(a->loop.cfg->log, DD_LOG_WARN, "ignoring a malformed exchange from the daemon");
    else if (p.round == (uint32_t)a->round->plan.round)
        round_message(a->round, &(struct round_message){.type = ROUND_PIECE, .piece = &p});
}

void rounds_presignal(const struct agent *a, int sig)
{
    if (a->loop.machine.state == AM_RUNNING)
        round_message(a->round, &(struct round_message){.type = ROUND_PRESIGNAL, .sig = sig});
}

int rounds_new(struct agent *a, struct dd_err *err)
{
    static const struct round_port port = {
        .send = send_to_daemon, .send_piece = send_piece, .settling = is_settling, .gone = on_gone};
    const struct round_env env = {.cfg = a->loop.cfg,
                                  .base = a->loop.base,
                                  .port = &port,
                                  .port_arg = a,
                                  .features = round_features};
    return round_new(&a->round, &env, err);
}
