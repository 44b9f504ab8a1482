/* Features and the exit report in a round without workers: the messages to the daemon. */
#include "agent/agent.h"
#include "agent/exit_report.h"
#include "agent/features.h"
#include "agent/left_workers.h"
#include "agent/success_criteria.h"
#include "base/auto.h"
#include "clock_world.h"
#include "framework/tf_roles.h"
#include "net/addr.h"
#include "net/loop.h"
#include "rdzv/msg.h"

#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

struct bed {
    struct agent_cfg cfg;
    struct tf_roles roles;
    struct round r;
    struct msg last; /* last message sent; its pointers are dangling */
    char why[200];   /* of the last EXIT */
    char left[20];   /* ranks of the last LEFT */
    int sent;
    struct event_base *base;
    struct round *launched;
    char order[80]; /* recorded steps, in order */
};

static void keep(void *arg, const struct msg *m)
{
    struct bed *b = arg;
    b->last = *m;
    b->sent++;
    if (m->type == MSG_LEFT)
        (void)snprintf(b->left, sizeof(b->left), "%s", m->left.ranks);
    if (m->type == MSG_EXIT)
        (void)snprintf(b->why, sizeof(b->why), "%s", m->exit.error != NULL ? m->exit.error : "");
}

static const struct round_port port = {.send = keep};
static const struct round_feature *const table[] = {&success_criteria_feature, NULL};

/* Set up node 1 of two nodes with three workers each. */
static void new_bed(struct bed *b, const char *roles)
{
    *b = (struct bed){0};
    if (roles != NULL) {
        assert_int_equal(tf_roles_parse(&b->roles, roles, NULL), 0);
        b->cfg.tf_roles = &b->roles;
    }
    b->r = (struct round){.cfg = &b->cfg,
                          .port = &port,
                          .port_arg = b,
                          .plan = {.round = 4,
                                   .nnodes = 2,
                                   .node_rank = 1,
                                   .first_rank = 3,
                                   .local_size = 3,
                                   .world_size = 6,
                                   .max_restarts = 3}};
    assert_int_equal(features_new(&b->r.features, table, &b->r, NULL), 0);
}

static void start_round(struct bed *b)
{
    assert_int_equal(features_prepare(b->r.features, &b->r, NULL), 0);
    exit_report_begin(&b->r);
    assert_int_equal(features_started(b->r.features, &b->r, NULL), 0);
}

static void free_bed(struct bed *b)
{
    features_end(b->r.features, &b->r);
    features_free(b->r.features);
}

static void exit_worker(struct bed *b, int local_rank, int code)
{
    const struct worker_end end = {.exit = {.local_rank = local_rank, .code = code},
                                   .error_file = ""};
    features_verdict(b->r.features, &b->r, &end);
}

/* ---- success criteria ---- */

static void success_is_reported_once_the_last_task_that_counts_has_succeeded(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, "worker:5,evaluator:1"); /* of this node's ranks, 3 and 4 count, 5 does not */
    start_round(&b);
    assert_false(success_criteria_met(&b.r));
    exit_worker(&b, 2, 0);
    exit_worker(&b, 0, 0);
    assert_int_equal(b.sent, 0);
    exit_worker(&b, 1, 0);
    assert_int_equal(b.sent, 1);
    assert_int_equal(b.last.type, MSG_SUCCESS_CRITERIA_MET);
    assert_int_equal(b.last.success_criteria_met.round, 4);
    assert_true(success_criteria_met(&b.r));
    free_bed(&b);
}

static void a_failed_task_is_no_success(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, "worker:5,evaluator:1");
    start_round(&b);
    exit_worker(&b, 0, 0);
    exit_worker(&b, 1, 1);
    assert_int_equal(b.sent, 0);
    assert_false(success_criteria_met(&b.r));
    free_bed(&b);
}

static void a_node_without_tasks_that_count_reports_success_at_the_start(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, "chief:1,ps:5"); /* the chief is on the other node */
    start_round(&b);
    assert_int_equal(b.sent, 1);
    assert_true(success_criteria_met(&b.r));
    free_bed(&b);
}

static void success_of_a_round_says_nothing_about_the_next(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, "chief:1,ps:5");
    assert_false(success_criteria_met(&b.r)); /* a spare node has no round yet */
    start_round(&b);
    features_end(b.r.features, &b.r);
    assert_true(success_criteria_met(&b.r));
    b.r.plan.round++; /* its start failed before any feature was prepared */
    assert_false(success_criteria_met(&b.r));
    free_bed(&b);
}

static void without_roles_there_are_no_criteria(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, NULL);
    start_round(&b);
    exit_worker(&b, 0, 0);
    assert_int_equal(b.sent, 0);
    assert_false(success_criteria_met(&b.r));
    free_bed(&b);
}

/* ---- workers that have left ---- */

static const struct round_feature *const left_table[] = {&left_workers_feature, NULL};

static void new_left_bed(struct bed *b)
{
    new_bed(b, NULL);
    features_free(b->r.features);
    b->r.base = b->base = event_base_new();
    assert_int_equal(features_new(&b->r.features, left_table, &b->r, NULL), 0);
    start_round(b);
}

static void workers_that_leave_while_others_run_are_reported_together(void **state)
{
    struct bed b;
    (void)state;
    new_left_bed(&b);
    exit_worker(&b, 0, 0);
    exit_worker(&b, 2, 0);
    assert_int_equal(b.sent, 0);
    clock_skip(1000);
    assert_int_equal(event_base_loop(b.base, EVLOOP_ONCE), 0);
    assert_int_equal(b.sent, 1);
    assert_int_equal(b.last.type, MSG_LEFT);
    assert_int_equal(b.last.left.round, 4);
    assert_string_equal(b.left, "3,5");
    free_bed(&b);
    event_base_free(b.base);
}

static void workers_that_fail_or_are_stopped_have_not_left(void **state)
{
    struct bed b;
    (void)state;
    new_left_bed(&b);
    exit_worker(&b, 0, 1);
    assert_int_equal(event_base_loop(b.base, EVLOOP_ONCE), 1); /* no event is pending */
    exit_worker(&b, 1, 0);
    features_stopping(b.r.features, &b.r);
    assert_int_equal(event_base_loop(b.base, EVLOOP_ONCE), 1);
    assert_int_equal(b.sent, 0);
    free_bed(&b);
    event_base_free(b.base);
}

/* ---- exits ---- */

static void exits_are_counted_by_what_caused_them(void **state)
{
    static const struct {
        const char *what;
        int stop_sig, code, signal;
        bool settling;
        int left, stopped, killed, failed;
    } rows[] = {
        {"success", 0, 0, 0, false, 1, 0, 0, 0},
        {"failure", 0, 3, 0, false, 0, 0, 0, 1},
        {"signal of its own", 0, 139, SIGSEGV, false, 0, 0, 0, 1},
        {"failure while the scheduler ends the job", 0, 1, 0, true, 0, 1, 0, 0},
        {"died of the stop", SIGTERM, 143, SIGTERM, false, 0, 1, 0, 0},
        {"exited with its code", SIGTERM, 143, 0, false, 0, 1, 0, 0},
        {"caught the stop", SIGTERM, 0, 0, false, 0, 1, 0, 0},
        {"grace period over", SIGTERM, 137, SIGKILL, false, 0, 0, 1, 0},
        {"killed at once", SIGKILL, 137, SIGKILL, false, 0, 1, 0, 0},
        {"failed while it was stopped", SIGTERM, 7, 0, false, 0, 0, 0, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bed b;
        const struct worker_end end = {
            .exit = {.local_rank = 1, .code = rows[i].code, .signal = rows[i].signal},
            .why = "it hung",
            .error_file = "",
            .settling = rows[i].settling};
        new_bed(&b, NULL);
        start_round(&b);
        b.r.stop_sig = rows[i].stop_sig;
        exit_report_worker(&b.r, &end);
        const struct exit_tally *n = &b.r.exits;
        if (n->left != rows[i].left || n->stopped != rows[i].stopped ||
            n->killed != rows[i].killed || n->failed != rows[i].failed)
            fail_msg("%s: left %d, stopped %d, killed %d, failed %d", rows[i].what, n->left,
                     n->stopped, n->killed, n->failed);
        assert_int_equal(b.sent, rows[i].failed);
        if (rows[i].failed) {
            assert_int_equal(b.last.type, MSG_EXIT);
            assert_int_equal(b.last.exit.rank, 4);
            assert_string_equal(b.why, "it hung");
        }
        free_bed(&b);
    }
}

static void the_node_is_checked_after_a_failure_if_another_round_may_come(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, NULL);
    start_round(&b);
    assert_false(exit_report_wants_check(&b.r));
    b.r.exits.failed = 1;
    assert_true(exit_report_wants_check(&b.r));
    b.r.plan.restart_count = b.r.plan.max_restarts;
    assert_false(exit_report_wants_check(&b.r));
    b.r.plan.restart_count = 0;
    b.r.exits.failed = 0;
    b.r.stop_sig = SIGTERM;
    assert_true(exit_report_wants_check(&b.r));
    free_bed(&b);
}

static void a_round_without_workers_is_reported_by_exit_and_done(void **state)
{
    struct bed b;
    (void)state;
    new_bed(&b, NULL);
    exit_report_no_start(&b.r, 5, 127, "no such program");
    assert_int_equal(b.last.type, MSG_EXIT);
    assert_int_equal(b.last.exit.code, 127);
    assert_string_equal(b.why, "no such program");
    exit_report_done(&b.r, "");
    assert_int_equal(b.last.type, MSG_DONE);
    assert_int_equal(b.last.done.round, 5);
    assert_int_equal(b.last.done.left, 0);
    assert_int_equal(b.sent, 2);
    free_bed(&b);
}

/* ---- --iface ---- */

static void only_the_first_node_goes_unchecked_with_iface(void **state)
{
    /* An agent that began as the first node and lost the port to another agent of its host. */
    const struct alloc first = {.index = 0};
    const struct msg plan = *MSG(PLAN, .addr = "127.0.0.1", .master_port = 2, .token = "t",
                                 .nodes = "node[0-1]", .sizes = "1,1", .node_rank = 1, .ports = "");
    struct net_addr peer;
    struct bed b;
    struct dd_err err = {0};
    (void)state;
    new_bed(&b, NULL);
    b.r.plan = (struct plan){0};
    b.cfg.alloc = &first;
    b.cfg.iface = "lo";
    assert_int_equal(net_addr_parse(&peer, "192.0.2.1", 1), 0);
    const struct round_link follows = {.local = &peer, .peer = &peer};
    const struct round_link leads = {.local = &peer, .peer = &peer, .of_first_node = true};
    assert_int_equal(round_plan(&b.r, &plan.plan, &leads, &err), 0);
    assert_int_equal(round_plan(&b.r, &plan.plan, &follows, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--iface=lo was set on this node"));
    plan_clear(&b.r.plan);
    free_bed(&b);
}

/* ---- workers ---- */

static void record(struct bed *b, const char *step)
{
    const size_t len = strlen(b->order);
    (void)snprintf(b->order + len, sizeof(b->order) - len, "%s%s", len > 0 ? " " : "", step);
}

static int take_part(void **state, const struct round *r, struct dd_err *err)
{
    (void)err;
    *state = r->port_arg;
    return 0;
}

/* Launch a round of one worker on one node. */
static int launch(struct bed *b, const struct round_feature *const *features,
                  const struct round_port *to, char *script, struct dd_err *err)
{
    static char sh[] = "/bin/sh", option[] = "-c", path[] = "PATH=/bin:/usr/bin", id[] = "test";
    static char *words[] = {sh, option, NULL, NULL};
    static char *env[] = {path, NULL};
    static const struct dd_strv program = {.v = words, .n = 3};
    static const struct alloc alloc = {.run_id = id, .job_id = id};
    static const struct dd_log log = {.fd = STDERR_FILENO, .level = DD_LOG_ERR};
    const struct msg plan = *MSG(PLAN, .round = 0, .max_restarts = 3, .addr = "127.0.0.1",
                                 .master_port = 2, .token = "t", .nodes = "node0", .sizes = "1",
                                 .ports = "");
    struct net_addr addr;
    words[2] = script;
    *b = (struct bed){.base = net_loop_new(),
                      .cfg = {.alloc = &alloc,
                              .node_name = "node0",
                              .env = env,
                              .worker.program = &program,
                              .slots = 1,
                              .worker.role = "default",
                              .output = {.raw = true},
                              .stdin_rank = STDIN_NONE,
                              .pty_rank = -1,
                              .log = &log}};
    const struct round_env with = {
        .cfg = &b->cfg, .base = b->base, .port = to, .port_arg = b, .features = features};
    assert_int_equal(net_addr_parse(&addr, "127.0.0.1", 1), 0);
    const struct round_link link = {.local = &addr, .peer = &addr};
    assert_int_equal(round_new(&b->launched, &with, err), 0);
    assert_int_equal(round_plan(b->launched, &plan.plan, &link, err), 0);
    return round_launch(b->launched, &link, err);
}

static void free_launched(struct bed *b)
{
    round_free(b->launched);
    event_base_free(b->base);
}

/* -- a start that fails -- */

static pid_t started_pid;

static int fail_started(void *state, const struct round *r, struct dd_err *err)
{
    (void)state;
    started_pid = worker_group_pid(r->group, 0);
    return dd_err_set(err, -EIO, "it does not start");
}

static void a_start_that_fails_in_its_last_step_leaves_no_worker(void **state)
{
    static const struct round_feature failing = {
        .name = "failing", .prepare = take_part, .started = fail_started};
    static const struct round_feature *const features[] = {&failing, NULL};
    char script[] = "exec sleep 1000";
    struct bed b;
    struct dd_err err = {0};
    (void)state;
    assert_int_equal(launch(&b, features, &port, script, &err), -EIO);
    assert_string_equal(err.text, "it does not start");
    assert_false(round_is_running(b.launched));
    assert_true(started_pid > 0);
    assert_int_equal(kill(started_pid, 0), -1);
    assert_int_equal(errno, ESRCH);
    free_launched(&b);
}

/* -- an exit -- */

static void record_worker_exit(void *state, const struct round *r, struct worker_end *end)
{
    (void)r;
    assert_int_equal(end->exit.code, 3);
    assert_false(end->settling);
    record(state, "worker_exit");
}

static void record_verdict(void *state, const struct round *r, const struct worker_end *end)
{
    (void)r;
    assert_true(end->settling);
    record(state, "verdict");
}

static bool record_settling(void *arg)
{
    record(arg, "settling");
    return true;
}

static void end_loop(void *arg)
{
    struct bed *b = arg;
    event_base_loopbreak(b->base);
}

static void signals_are_drained_between_the_meaning_of_an_exit_and_its_verdict(void **state)
{
    static const struct round_feature recording = {.name = "recording",
                                                   .prepare = take_part,
                                                   .worker_exit = record_worker_exit,
                                                   .verdict = record_verdict};
    static const struct round_feature *const features[] = {&recording, NULL};
    static const struct round_port ending = {
        .send = keep, .settling = record_settling, .gone = end_loop};
    char script[] = "exit 3";
    struct bed b;
    struct dd_err err = {0};
    (void)state;
    assert_int_equal(launch(&b, features, &ending, script, &err), 0);
    event_base_dispatch(b.base);
    assert_string_equal(b.order, "worker_exit settling verdict settling");
    assert_int_equal(b.launched->exits.stopped, 1);
    assert_int_equal(b.sent, 1);
    assert_int_equal(b.last.type, MSG_STARTED); /* and no EXIT */
    free_launched(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_is_reported_once_the_last_task_that_counts_has_succeeded),
        cmocka_unit_test(a_failed_task_is_no_success),
        cmocka_unit_test(a_node_without_tasks_that_count_reports_success_at_the_start),
        cmocka_unit_test(success_of_a_round_says_nothing_about_the_next),
        cmocka_unit_test(without_roles_there_are_no_criteria),
        cmocka_unit_test(workers_that_leave_while_others_run_are_reported_together),
        cmocka_unit_test(workers_that_fail_or_are_stopped_have_not_left),
        cmocka_unit_test(exits_are_counted_by_what_caused_them),
        cmocka_unit_test(the_node_is_checked_after_a_failure_if_another_round_may_come),
        cmocka_unit_test(a_round_without_workers_is_reported_by_exit_and_done),
        cmocka_unit_test(only_the_first_node_goes_unchecked_with_iface),
        cmocka_unit_test(a_start_that_fails_in_its_last_step_leaves_no_worker),
        cmocka_unit_test(signals_are_drained_between_the_meaning_of_an_exit_and_its_verdict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
