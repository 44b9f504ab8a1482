/* The rounds of this node: start a round for each PLAN, report its end to the daemon. */
#include "agent/agent_parts.h"
#include "agent/collecting.h"
#include "agent/cuda_core.h"
#include "agent/exit_report.h"
#include "agent/features.h"
#include "agent/staging.h"
#include "base/auto.h"
#include "base/buf.h"
#include "rdzv/exchange.h"
#include "report/usage.h"

#include <errno.h>
#include <event2/event.h>

/* ---- the end ---- */

void rounds_send_done(const struct agent *a)
{
    DD_AUTO(buf) struct dd_buf warnings = DD_BUF_INIT(8192);
    const char *const texts[] = {health_warnings(a->health), cuda_core_files(a->round),
                                 collecting_missing(a->round)};
    int rc = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && rc == 0; i++) {
        if (warnings.len > 0 && texts[i][0] != '\0')
            rc = dd_buf_puts(&warnings, "\n");
        if (rc == 0)
            rc = dd_buf_puts(&warnings, texts[i]);
    }
    if (rc == 0 && warnings.len > 0)
        uplink_send(a->uplink, MSG(WARNINGS, .text = dd_buf_str(&warnings)));
    exit_report_done(a->round, health_unfit(a->health));
}

static void on_checked(void *arg)
{
    struct agent *a = arg;
    agent_step(&a->loop, (struct am_event){.kind = AM_CHECKED});
}

/* Skip the check after success, without another round, and while the job is being stopped. */
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

void rounds_presignal(struct agent *a, int sig)
{
    if (a->rounds.held)
        a->rounds.presignal = sig;
    else if (a->loop.machine.state == AM_RUNNING)
        round_message(a->round, &(struct round_message){.type = ROUND_PRESIGNAL, .sig = sig});
}

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

static void send_store(void *arg, const void *p, size_t n)
{
    const struct agent *a = arg;
    uplink_send_store(a->uplink, p, n);
}

static void refuse_store(void *arg)
{
    const struct agent *a = arg;
    uplink_refuse_store(a->uplink);
}

static bool is_settling(void *arg)
{
    const struct agent *a = arg;
    signals_drain(a->signals);
    return signals_settling(a->signals);
}

static int read_gpus(void *arg, struct gpu_usage *ret, uint64_t *ret_readings)
{
    const struct agent *a = arg;
    return health_gpus(a->health, ret, ret_readings);
}

static const struct warm_fork *warm_of(void *arg)
{
    const struct agent *a = arg;
    return warm_interpreter_fork(a->rounds.warm);
}

static void warm_failed(void *arg, const char *why)
{
    const struct agent *a = arg;
    warm_interpreter_failed(a->rounds.warm, why);
}

static void not_started(struct agent *a, int round, int rc, const struct dd_err *err)
{
    const bool lasting = rc == -ENOTSUP; /* a restart would fail, too */
    dd_log(a->loop.cfg->log, uplink_is_up(a->uplink) ? DD_LOG_INFO : DD_LOG_ERR, "%s",
           err->text); /* with a link, the job's report contains the reason */
    if (lasting)
        uplink_send(a->uplink, MSG(STOP_REQUEST, .text = err->text));
    exit_report_no_start(a->round, round, rc == -ENOENT ? 127 : 126, lasting ? NULL : err->text);
}

static struct round_link link_of(const struct agent *a)
{
    const struct link *up = uplink_link(a->uplink);
    return (struct round_link){.local = link_local(up),
                               .peer = link_peer(up),
                               .of_first_node = locate_is_first_node(&a->locators.where)};
}

static int launch(struct agent *a)
{
    struct dd_err err = {0};
    const struct round_link link = link_of(a);
    int rc = round_launch(a->round, &link, &err);
    warm_interpreter_start(a->rounds.warm, a->round); /* no-op unless the last one has failed */
    if (rc < 0) {
        not_started(a, a->round->plan.round, rc, &err);
        return rc;
    }
    if (leader_daemon(a->leader) > 0)
        round_protect(a->round, leader_daemon(a->leader));
    if (a->rounds.presignal != 0)
        rounds_presignal(a, a->rounds.presignal);
    signal_before_end_round(a->limits.before_end);
    node_watch_round(a->limits.node_watch);
    return 0;
}

static void on_warm(void *arg)
{
    struct agent *a = arg;
    a->rounds.held = false;
    if (launch(a) < 0)
        agent_step(&a->loop, (struct am_event){.kind = AM_NOT_STARTED});
}

void rounds_drop_held(struct agent *a)
{
    if (!a->rounds.held)
        return;
    a->rounds.held = a->rounds.copying = false;
    event_del(a->rounds.on_staged);
    warm_interpreter_wait_no_more(a->rounds.warm);
    round_end(a->round); /* discard the round that hold_for_copies() has prepared */
    exit_report_begin(a->round);
    agent_step(&a->loop, (struct am_event){.kind = AM_WORKERS_GONE});
}

/* True if the round has copies of this kind. */
static bool has_copies(const struct staging_cfg *c)
{
    return c->paths != NULL && c->paths->n > 0;
}

/* The interpreter of --warm starts from the copies of --stage; it forks the workers when the copies
 * of --compile-cache are complete, too. */
static void on_staged(evutil_socket_t fd, short what, void *arg)
{
    struct agent *a = arg;
    (void)fd;
    (void)what;
    if (!a->rounds.copying)
        return;
    warm_interpreter_start(a->rounds.warm, a->round);
    if ((has_copies(&a->loop.cfg->staging) && !staging_is_settled(a->round)) ||
        (has_copies(&a->loop.cfg->compile_cache) && !compile_cache_is_settled(a->round)))
        return;
    a->rounds.copying = false;
    if (!warm_interpreter_wait(a->rounds.warm, on_warm, a))
        on_warm(a);
}

static void staged(void *arg)
{
    const struct agent *a = arg;
    if (a->rounds.copying)
        event_active(a->rounds.on_staged, 0, 0);
}

static void show_progress(void *arg, const char *text)
{
    const struct agent *a = arg;
    status_line_progress(a->status_line, text);
}

/* With --warm, the copies of --stage and --compile-cache are made before any worker starts. */
static int hold_for_copies(struct agent *a)
{
    struct dd_err err = {0};
    const int round = a->round->plan.round;
    a->rounds.held = a->rounds.copying = true; /* first, since round_prepare() may call staged() */
    const int rc = round_prepare(a->round, &err);
    if (rc < 0) {
        a->rounds.held = a->rounds.copying = false;
        not_started(a, round, rc, &err);
    }
    return rc;
}

int rounds_start(struct agent *a, const struct msg_plan *m)
{
    struct dd_err err = {0};
    const struct round_link link = link_of(a);
    a->rounds.presignal = 0;
    int rc = round_plan(a->round, m, &link, &err);
    if (rc == 0)
        rc = round_history_record(&a->history, m, a->round->plan.nnodes, &err);
    if (rc == 0)
        agent_loop_set_index(&a->loop, a->history.last.index[a->round->plan.node_rank]);
    if (rc < 0) {
        not_started(a, m->round, rc, &err);
        return rc;
    }
    const struct agent_cfg *c = a->loop.cfg;
    if ((has_copies(&c->staging) || has_copies(&c->compile_cache)) &&
        warm_interpreter_is_used(a->rounds.warm))
        return hold_for_copies(a);
    a->rounds.held = warm_interpreter_wait(a->rounds.warm, on_warm, a);
    return a->rounds.held ? 0 : launch(a);
}

/* ---- messages ---- */

void rounds_take_piece(const struct agent *a, const struct frame *f)
{
    struct exchange_piece p;
    if (exchange_piece_decode(&p, f->data, f->len) < 0)
        dd_log(a->loop.cfg->log, DD_LOG_WARN,
               "ignoring a malformed exchange message from the daemon");
    else if (p.round == (uint32_t)a->round->plan.round)
        round_message(a->round, &(struct round_message){.type = ROUND_PIECE, .piece = &p});
}

void rounds_take_store(const struct agent *a, const struct frame *f)
{
    round_message(a->round,
                  &(struct round_message){.type = ROUND_STORE, .data = f->data, .len = f->len});
}

void rounds_link_lost(const struct agent *a)
{
    if (a->round != NULL)
        round_message(a->round, &(struct round_message){.type = ROUND_LINK_LOST});
}

void rounds_first_lost(const struct agent *a)
{
    if (a->round != NULL)
        round_message(a->round, &(struct round_message){.type = ROUND_FIRST_LOST});
}

void rounds_take_stacks(const struct agent *a, const struct msg_stacks_request *m)
{
    if (a->loop.machine.state == AM_RUNNING && round_is_running(a->round))
        round_message(a->round, &(struct round_message){.type = ROUND_STACKS, .stacks = m});
    else
        uplink_send(a->uplink, MSG(STACKS, .id = m->id, .text = "{\"groups\":[]}"));
}

void rounds_take_usage(const struct agent *a, const struct msg_usage_request *m)
{
    if (a->loop.machine.state == AM_RUNNING && round_is_running(a->round))
        round_message(a->round, &(struct round_message){.type = ROUND_USAGE, .usage = m});
    else
        uplink_send(a->uplink, MSG(USAGE, .id = m->id, .text = USAGE_NONE));
}

int rounds_new(struct agent *a, struct dd_err *err)
{
    static const struct round_port port = {.send = send_to_daemon,
                                           .send_piece = send_piece,
                                           .send_store = send_store,
                                           .refuse_store = refuse_store,
                                           .settling = is_settling,
                                           .gone = on_gone,
                                           .warm = warm_of,
                                           .warm_failed = warm_failed,
                                           .staged = staged,
                                           .gpus = read_gpus,
                                           .progress = show_progress};
    const struct round_env env = {.cfg = a->loop.cfg,
                                  .base = a->loop.base,
                                  .port = &port,
                                  .port_arg = a,
                                  .features = round_features};
    a->rounds.on_staged = event_new(a->loop.base, -1, 0, on_staged, a);
    return a->rounds.on_staged == NULL ? dd_err_set(err, -ENOMEM, "out of memory")
                                       : round_new(&a->round, &env, err);
}

void rounds_done(struct agent *a)
{
    if (a->rounds.on_staged != NULL)
        event_free(DD_TAKE(a->rounds.on_staged));
}
