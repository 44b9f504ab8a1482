/* rdzv: rules for exit codes, and which nodes the round machine leaves out because of them. */
#include "rdzv_bed.h"

#include "base/auto.h"
#include "rdzv/blame.h"
#include "rdzv/exit_rules.h"
#include "report/causes.h"
#include "report/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

/* ---- the rules ---- */

static void rules_are_read_and_written(void **state)
{
    static const struct {
        const char *text, *again;
    } rows[] = {
        {"", ""},
        {"16=move,17=stop,75=requeue,93=no-requeue", "16=move,17=stop,75=requeue,93=no-requeue"},
        {"17=stop,16=move,", "16=move,17=stop"},
        {"64-66=stop,65=restart", "64=stop,66=stop"},
        {"SIGBUS=move,SIGSEGV=stop", "135=move,139=stop"},
        {"1=stop,255=move,1=move", "1=move,255=move"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct exit_rules r = {0};
        struct dd_err err = {.text = ""};
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(EXIT_RULES_TEXT);
        assert_int_equal(exit_rules_parse(&r, rows[i].text, &err), 0);
        assert_string_equal(err.text, "");
        assert_int_equal(exit_rules_format(&out, &r), 0);
        assert_string_equal(dd_buf_str(&out), rows[i].again);
    }
}

static void invalid_rules_change_nothing(void **state)
{
    static const char *const rows[] = {
        "17",           "=stop",           "17=",
        "17=halt",      "0=stop",          "256=stop",
        "-1=stop",      "17 =stop",        "x=stop",
        "20-10=stop",   "10-=stop",        "-10=stop",
        "10-256=stop",  "1-2-3=stop",      "SIG=stop",
        "SIGNOPE=stop", "17==stop",        ",",
        "17=stop,,",    "17=stop 18=stop", "000000000000000000000000000000000000017=stop",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct exit_rules r = {.of = {[3] = EXIT_MOVE}};
        struct dd_err err = {.text = ""};
        if (exit_rules_parse(&r, rows[i], &err) != -EINVAL)
            fail_msg("'%s' is accepted", rows[i]);
        assert_non_null(strstr(err.text, "invalid rule"));
        assert_int_equal(exit_rules_get(&r, 3), EXIT_MOVE);
        assert_int_equal(exit_rules_get(&r, 17), EXIT_RESTART);
    }
}

static void any_rules_fit_into_their_buffer(void **state)
{
    struct exit_rules r;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(EXIT_RULES_TEXT);
    (void)state;
    memset(&r, EXIT_NO_REQUEUE, sizeof(r));
    assert_int_equal(exit_rules_format(&out, &r), 0);
    assert_int_equal(exit_rules_get(&r, 0), EXIT_RESTART);
    assert_int_equal(exit_rules_get(&r, -1), EXIT_RESTART);
    assert_int_equal(exit_rules_get(&r, 256), EXIT_RESTART);
}

/* ---- the machine ---- */

static struct rdzv_cfg with_rules(int min, int max, int expected)
{
    struct rdzv_cfg cfg = {
        .min_nodes = min, .max_nodes = max, .expected = expected, .max_restarts = 9};
    assert_int_equal(exit_rules_parse(&cfg.exit_rules, "16=move,17=stop,75=requeue", NULL), 0);
    return cfg;
}

/* A job of nodes n0, n1, …; ids are indexes. Its first round runs. */
static void start(struct bed *b, const struct rdzv_cfg *cfg)
{
    static const char *const names[] = {"n0", "n1", "n2", "n3", "n4"};
    bed_elastic(b, *cfg);
    for (int i = 0; i < cfg->expected; i++) {
        const struct rdzv_event e = {.kind = RDZV_JOIN,
                                     .id = i,
                                     .index = i,
                                     .nnodes = cfg->max_nodes,
                                     .min_nodes = cfg->min_nodes,
                                     .slots = 1,
                                     .name = names[i],
                                     .addr = i == 0 ? "" : "10.0.0.1"};
        assert_int_equal(rdzv_step(b->m, &e, b->now), 0);
    }
    if (rdzv_state(b->m) == RDZV_GATHERING)
        assert_int_equal(pass(b, 50), 0);
    assert_int_equal(rdzv_state(b->m), RDZV_RUNNING);
    (void)actions(b);
}

/* Member ids of the round, by node rank: "0 2". */
static const char *seats(const struct bed *b)
{
    static char out[64];
    out[0] = '\0';
    for (int k = 0; k < rdzv_planned(b->m)->n; k++)
        (void)snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s%d", k > 0 ? " " : "",
                       rdzv_id_of_rank(b->m, k));
    return out;
}

/* All members of the round end. */
static void end_round(struct bed *b)
{
    const int round = rdzv_round(b->m);
    for (int id = 0; id < 5; id++) {
        struct rdzv_view v;
        if (rdzv_view(b->m, id, &v) && v.part && !v.done && rdzv_round(b->m) == round)
            assert_int_equal(event(b, RDZV_DONE, id, 0, 0, 0), 0);
    }
}

static void fails(struct bed *b, int id, int code)
{
    assert_int_equal(event(b, RDZV_EXIT, id, 0, code, 0), 0);
}

static void a_code_to_stop_ends_the_job_with_it(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(2, 2, 2);
    (void)state;
    start(&b, &cfg);
    fails(&b, 1, 17);
    (void)actions(&b);
    end_round(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_code(b.m), 17);
    assert_true(rdzv_code_is_ruled(b.m));
    assert_string_equal(actions(&b), "note0 finish0! finish1");
    bed_free(&b);
}

/* Agents report failures of one moment in any order. */
static void a_code_to_stop_counts_also_as_the_second_failure(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(2, 2, 2);
    (void)state;
    start(&b, &cfg);
    fails(&b, 0, 1);
    fails(&b, 1, 75);
    fails(&b, 1, 17);
    end_round(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_code(b.m), 75);
    bed_free(&b);
}

static void a_code_without_a_rule_restarts(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(2, 2, 2);
    (void)state;
    start(&b, &cfg);
    fails(&b, 1, 18);
    end_round(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_RUNNING);
    assert_int_equal(rdzv_round(b.m), 1);
    assert_false(rdzv_code_is_ruled(b.m));
    assert_string_equal(seats(&b), "0 1");
    bed_free(&b);
}

static void no_rule_applies_to_a_round_that_ddrun_stops_to_grow(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_rules(2, 3, 3);
    (void)state;
    cfg.grow = RDZV_GROW_NOW;
    bed_elastic(&b, cfg);
    for (int id = 0; id < 3; id++) {
        if (id == 2)
            assert_int_equal(pass(&b, 50), 0);
        assert_int_equal(join(&b, id, id, 3, node(1, "n", id == 0 ? "" : "10.0.0.1")), 0);
    }
    assert_int_equal(rdzv_state(b.m), RDZV_STOPPING);
    fails(&b, 1, 17);
    end_round(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_RUNNING);
    assert_int_equal(rdzv_planned(b.m)->n, 3);
    bed_free(&b);
}

static void a_spare_takes_the_place_of_a_moved_node(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(3, 3, 4);
    struct rdzv_view v;
    (void)state;
    start(&b, &cfg);
    assert_string_equal(seats(&b), "0 1 2");
    fails(&b, 1, 16);
    end_round(&b);
    assert_string_equal(seats(&b), "0 3 2");
    assert_true(rdzv_view(b.m, 1, &v) && v.rested && !v.part);
    assert_int_equal(rdzv_restarts(b.m), 1);
    end_round(&b);
    assert_int_equal(rdzv_code(b.m), 0);
    bed_free(&b);
}

/* The next node that moves gives its place to the one that has rested. */
static void a_moved_node_is_a_spare_of_later_rounds(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(3, 3, 4);
    struct rdzv_view v;
    (void)state;
    start(&b, &cfg);
    fails(&b, 1, 16);
    end_round(&b);
    fails(&b, 2, 16);
    end_round(&b);
    assert_string_equal(seats(&b), "0 3 1");
    assert_true(rdzv_view(b.m, 1, &v) && !v.rested);
    assert_true(rdzv_view(b.m, 2, &v) && v.rested);
    fails(&b, 0, 1);
    end_round(&b);
    assert_string_equal(seats(&b), "0 3 1");
    bed_free(&b);
}

static void without_a_spare_no_node_is_left_out(void **state)
{
    static const struct {
        int min, max, expected;
        const char *seats;
    } rows[] = {{3, 3, 3, "0 1 2"}, {2, 3, 3, "0 1 2"}, {1, 4, 3, "0 1 2"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bed b;
        const struct rdzv_cfg cfg = with_rules(rows[i].min, rows[i].max, rows[i].expected);
        start(&b, &cfg);
        fails(&b, 0, 16);
        fails(&b, 1, 16);
        (void)actions(&b);
        end_round(&b);
        assert_string_equal(seats(&b), rows[i].seats);
        assert_non_null(strstr(actions(&b), "note0 note0"));
        bed_free(&b);
    }
}

/* Of two nodes that move, one spare replaces the first. */
static void one_spare_replaces_one_node(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(3, 3, 4);
    (void)state;
    start(&b, &cfg);
    fails(&b, 2, 16);
    fails(&b, 1, 16);
    end_round(&b);
    assert_string_equal(seats(&b), "0 3 2");
    bed_free(&b);
}

/* One of two nodes that leaves the other two without a majority stays: n0, with the daemon. */
static void a_node_that_the_majority_needs_stays(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(2, 2, 3);
    (void)state;
    start(&b, &cfg);
    fails(&b, 0, 16);
    end_round(&b);
    assert_string_equal(seats(&b), "0 1");
    fails(&b, 1, 16);
    end_round(&b);
    assert_string_equal(seats(&b), "0 2");
    bed_free(&b);
}

static void a_moved_node_replaces_one_that_is_lost(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(3, 3, 4);
    (void)state;
    start(&b, &cfg);
    fails(&b, 1, 16);
    end_round(&b);
    assert_int_equal(event(&b, RDZV_LOST, 2, 0, 0, 0), 0);
    end_round(&b);
    assert_string_equal(seats(&b), "0 3 1");
    bed_free(&b);
}

/* ---- blame ---- */

static void errors_of_peers_are_remote(void **state)
{
    static const struct {
        int signal;
        const char *text;
        bool remote;
    } rows[] = {
        {0, "", false},
        {0, NULL, false},
        {SIGPIPE, "", true},
        {SIGKILL, NULL, false},
        {0, "RuntimeError: CUDA error: an illegal memory access was encountered", false},
        {0, "hung: no output for 60 s", false},
        {0, "the job hung: no output or processor time for 60 s", true},
        {0, "BrokenPipeError: [Errno 32] Broken pipe", true},
        {0, "ConnectionResetError: [Errno 104] Connection reset by peer", true},
        {0,
         "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
         "peer [10.0.0.2]:9111",
         true},
        {0,
         "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, remote process "
         "exited or there was a network error, NCCL version 2.29.7",
         true},
        {0,
         "ncclRemoteError: A call failed possibly due to a network error or a remote process "
         "exiting prematurely.",
         true},
        {0, "NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (blame_is_remote(
                &(struct report_exit){.signal = rows[i].signal, .code = 1, .error = rows[i].text},
                rows[i].text) != rows[i].remote)
            fail_msg("row %zu", i);
}

/* What the report calls a consequence is charged to no node, whether its last lines show it or its
 * message does. */
static void consequences_in_the_report_are_remote(void **state)
{
    static const struct {
        const char *error, *tail;
        bool remote;
    } rows[] = {
        {"", "[n1:1] mca_btl_tcp_frag_recv: readv failed: timed out", true},
        {"monitoredBarrier failed: rank 3 did not arrive", "", true},
        {"RuntimeError: boom", "Broken pipe", false},
        {"RuntimeError: boom", "", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct report_exit e = {.code = 1, .error = rows[i].error, .tail = rows[i].tail};
        if (blame_is_remote(&e, "") != rows[i].remote)
            fail_msg("row %zu", i);
    }
}

static struct rdzv_cfg with_blame(int min, int max, int expected, uint64_t window)
{
    return (struct rdzv_cfg){.min_nodes = min,
                             .max_nodes = max,
                             .expected = expected,
                             .max_restarts = 9,
                             .blame_window_ns = window};
}

/* A worker ended at the time `at`. */
static void fails_at(struct bed *b, int id, uint64_t at, bool remote)
{
    const struct rdzv_event e = {.kind = RDZV_EXIT,
                                 .id = id,
                                 .round = rdzv_round(b->m),
                                 .code = 1,
                                 .at = at,
                                 .remote = remote,
                                 .text = remote ? "theirs" : "mine"};
    assert_int_equal(rdzv_step(b->m, &e, b->now), 0);
}

static int charges(const struct bed *b, int index)
{
    struct rdzv_charges c;
    return rdzv_charges(b->m, index, b->now, &c) ? c.n : 0;
}

/* Node 2 failed first, and its message comes last. */
static void the_earliest_failure_of_a_round_is_charged(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 3, 0);
    struct rdzv_charges c;
    (void)state;
    start(&b, &cfg);
    b.now = 1000;
    fails_at(&b, 0, 990, true);
    fails_at(&b, 1, 995, false);
    b.now = 1500;
    fails_at(&b, 2, 993, false);
    b.now = 1600;
    end_round(&b);
    assert_int_equal(charges(&b, 0) + charges(&b, 1), 0);
    assert_true(rdzv_charges(b.m, 2, 1700, &c));
    assert_string_equal(c.name, "n2");
    assert_string_equal(c.why, "mine");
    assert_int_equal(c.n, 1);
    assert_int_equal(c.age_ns, 100);
    assert_false(rdzv_charges(b.m, -1, 0, &c) || rdzv_charges(b.m, 3, 0, &c));
    bed_free(&b);
}

/* The first failure is a remote one; the others follow the STOP that it caused. */
static void what_a_stop_may_have_caused_is_not_charged(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 3, 0);
    (void)state;
    start(&b, &cfg);
    b.now = 1000;
    fails_at(&b, 0, 990, true);
    b.now = 1500;
    fails_at(&b, 1, 1001, false);
    fails_at(&b, 2, 0, false);
    end_round(&b);
    assert_int_equal(charges(&b, 0) + charges(&b, 1) + charges(&b, 2), 0);
    assert_int_equal(rdzv_round(b.m), 1);
    bed_free(&b);
}

static void a_lost_node_is_charged_unless_it_left(void **state)
{
    (void)state;
    for (int clean = 0; clean < 2; clean++) {
        struct bed b;
        const struct rdzv_cfg cfg = with_blame(2, 3, 3, 0);
        struct rdzv_charges c;
        start(&b, &cfg);
        const struct rdzv_event e = {
            .kind = RDZV_LOST, .id = 2, .clean = clean != 0, .text = "it ended"};
        assert_int_equal(rdzv_step(b.m, &e, b.now), 0);
        end_round(&b);
        assert_int_equal(charges(&b, 2), clean ? 0 : 1);
        if (rdzv_charges(b.m, 2, b.now, &c))
            assert_string_equal(c.why, "lost n2: it ended");
        bed_free(&b);
    }
}

/* The end of the job, by a rule, without progress, or without a restart left, is charged as well.
 */
static void the_failure_that_ends_the_job_is_charged(void **state)
{
    static const struct {
        int code, max_restarts, progress_restarts;
    } rows[] = {{17, 9, 0}, {75, 9, 0}, {3, 0, 0}, {3, 9, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bed b;
        struct rdzv_cfg cfg = with_rules(3, 3, 3);
        struct rdzv_charges c;
        cfg.max_restarts = rows[i].max_restarts;
        cfg.progress_restarts = rows[i].progress_restarts;
        start(&b, &cfg);
        assert_int_equal(rdzv_last_charge(b.m, b.now, &c), 0);
        int failed = 0;
        while (rdzv_state(b.m) == RDZV_RUNNING && failed < 5) {
            assert_int_equal(event(&b, RDZV_EXIT, 1, 0, rows[i].code, 0), 0);
            end_round(&b);
            failed++;
        }
        assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
        assert_int_equal(rdzv_last_charge(b.m, b.now, &c), failed);
        assert_string_equal(c.name, "n1");
        assert_int_equal(c.n, failed);
        bed_free(&b);
    }
}

/* The workers that a user's request ends are no failure of their node. */
static void a_stop_request_is_charged_to_no_node(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 3, 0);
    struct rdzv_charges c;
    (void)state;
    start(&b, &cfg);
    b.now = 1000;
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 0, 0, 0, SIGINT), 0);
    fails_at(&b, 1, 1001, false);
    end_round(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_last_charge(b.m, b.now, &c), 0);
    bed_free(&b);
}

/* Without a host list, the name of a lost node comes from its JOIN. */
static void a_charge_names_the_lost_node(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(2, 2, 2, 0);
    const struct rdzv_event e = {.kind = RDZV_LOST, .id = 1, .text = "it ended"};
    struct rdzv_charges c;
    (void)state;
    start(&b, &cfg);
    assert_int_equal(rdzv_step(b.m, &e, b.now), 0);
    end_round(&b);
    assert_int_equal(rdzv_last_charge(b.m, b.now, &c), 1);
    assert_string_equal(c.name, "n1");
    assert_string_equal(c.why, "lost n1: it ended");
    bed_free(&b);
}

static void fail_rounds(struct bed *b, int id, int n, uint64_t every)
{
    for (int i = 0; i < n; i++) {
        b->now += every;
        fails_at(b, id, b->now, false);
        (void)actions(b);
        end_round(b);
    }
}

static void a_node_with_two_charges_within_the_window_is_replaced(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 4, 100);
    (void)state;
    start(&b, &cfg);
    fail_rounds(&b, 1, 2, 101);
    assert_string_equal(seats(&b), "0 1 2"); /* the charges are too far apart */
    fail_rounds(&b, 1, 1, 100);
    assert_string_equal(seats(&b), "0 3 2");
    assert_non_null(strstr(actions(&b), "note"));
    assert_int_equal(charges(&b, 1), 3);
    fail_rounds(&b, 3, 2, 10); /* it returns for the next one */
    assert_string_equal(seats(&b), "0 1 2");
    fail_rounds(&b, 1, 1, 10); /* and is charged anew */
    assert_string_equal(seats(&b), "0 1 2");
    fail_rounds(&b, 1, 1, 10);
    assert_string_equal(seats(&b), "0 3 2");
    bed_free(&b);
}

static void without_a_window_no_node_is_replaced(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 4, 0);
    (void)state;
    start(&b, &cfg);
    fail_rounds(&b, 1, 5, 1);
    assert_string_equal(seats(&b), "0 1 2");
    assert_int_equal(charges(&b, 1), 5);
    bed_free(&b);
}

static void an_elastic_job_without_a_spare_loses_no_node_by_blame(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(2, 4, 4, 1000);
    (void)state;
    start(&b, &cfg);
    fail_rounds(&b, 1, 4, 1);
    assert_string_equal(seats(&b), "0 1 2 3");
    bed_free(&b);
}

/* ---- charges that outlive a daemon ---- */

/* Parsed; the caller clears it. */
static struct charges parsed(const char *text, uint64_t age_ms)
{
    struct charges c = {0};
    assert_int_equal(charges_parse(&c, text, age_ms), 0);
    return c;
}

static void charges_grow_older(void **state)
{
    struct charges c = parsed("1 2 0 1 250 600 node3\tboom: at\xc3\xb6 a.py\n"
                              "-1 1 1 0 7 0 n9\t\n",
                              1000);
    (void)state;
    assert_int_equal(c.count, 2);
    assert_int_equal(c.v[0].index, 1);
    assert_int_equal(c.v[0].n, 2);
    assert_int_equal(c.v[0].fresh, 0);
    assert_int_equal(c.v[0].rest, CHARGE_REST_BLAME);
    assert_int_equal(c.v[0].age_ms, 1250);
    assert_int_equal(c.v[0].before_ms, 1600);
    assert_string_equal(c.v[0].name, "node3");
    assert_string_equal(c.v[0].why, "boom: at\xc3\xb6 a.py");
    assert_string_equal(c.v[1].why, "");
    charges_clear(&c);
}

static void invalid_charges_are_refused(void **state)
{
    static const char *const rows[] = {
        "x",
        "\n",
        "1 1 1 0 0 0 n\twhy", /* no end */
        "1 1 1 0 0 0 n why\n",
        "1 1 1 0 0 0 \twhy\n",
        "1 0 1 0 0 0 n\twhy\n",
        "-2 1 1 0 0 0 n\twhy\n",
        "65536 1 1 0 0 0 n\twhy\n",
        "1 1 1 3 0 0 n\twhy\n",
        "1 1 1 0 -1 0 n\twhy\n",
        "1 1 1 0 99999999999999999999 0 n\twhy\n",
        "1 1 1 0 0 n\twhy\n",
        "+1 1 1 0 0 0 n\twhy\n",
        "1 1 1 0 0 0 n\twhy\twhy\n",
        "1 1 1 0 0 0 n\rm\twhy\n",
    };
    DD_AUTO(buf) struct dd_buf many = DD_BUF_INIT(CHARGES_BYTES);
    struct charges c = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (charges_parse(&c, rows[i], 0) != -EPROTO || c.count != 0)
            fail_msg("row %zu", i);
    for (int i = 0; i <= CHARGES_MAX; i++)
        assert_int_equal(charge_format(&many, &(struct charge){.n = 1, .name = "n", .why = ""}), 0);
    assert_int_equal(charges_parse(&c, dd_buf_str(&many), 0), -EPROTO);
}

/* The longest lines fit into the limit of the messages. */
static void any_charges_fit_into_their_buffer(void **state)
{
    char name[300], why[300];
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(CHARGES_BYTES);
    DD_AUTO(charges) struct charges c = {0};
    (void)state;
    memset(name, 'n', sizeof(name));
    memset(why, '\n', sizeof(why));
    name[sizeof(name) - 1] = why[sizeof(why) - 1] = '\0';
    for (int i = 0; i < CHARGES_MAX; i++)
        assert_int_equal(charge_format(&out, &(struct charge){.index = 65535,
                                                              .n = INT32_MAX,
                                                              .fresh = INT32_MAX,
                                                              .age_ms = UINT64_MAX,
                                                              .before_ms = UINT64_MAX,
                                                              .name = name,
                                                              .why = why}),
                         0);
    assert_int_equal(charges_parse(&c, dd_buf_str(&out), UINT64_MAX), 0);
    assert_int_equal(c.count, CHARGES_MAX);
}

static void a_file_of_charges_is_read_as_it_was_written(void **state)
{
    static const char charges[] = "1 2 0 1 250 600 node3\tboom\n2 1 1 0 0 0 n9\t\n";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(CHARGES_FILE_MAX);
    const char *found = NULL;
    uint64_t age = 0;
    (void)state;
    assert_int_equal(charges_file_format(&out, "slurm.c.7.0", 1000000, charges), 0);
    assert_string_equal(
        dd_buf_str(&out),
        "ddrun-charges 1 1000000 slurm.c.7.0\n1 2 0 1 250 600 node3\tboom\n2 1 1 0 0 0 n9\t\n");
    assert_int_equal(charges_file_parse(dd_buf_str(&out), "slurm.c.7.0", 1002500, &found, &age), 0);
    assert_string_equal(found, charges);
    assert_int_equal(age, 2500);
    assert_int_equal(charges_file_parse(dd_buf_str(&out), "slurm.c.7.0", 999, &found, &age), 0);
    assert_int_equal(age, 0); /* the clock of the node that wrote it is ahead */
    assert_int_equal(charges_file_format(&out, "a\nb", 0, ""), -EINVAL);
    assert_int_equal(charges_file_format(&out, "", 0, ""), -EINVAL);
}

static void other_files_are_refused(void **state)
{
    static const char *const rows[] = {
        "",
        "ddrun-charges",
        "ddrun-charges 1 ",
        "ddrun-charges 1 5 job",
        "ddrun-charges 2 5 job\n",
        "ddrun-charges 1 5 other\n",
        "ddrun-charges 1 5 job2\n",
        "ddrun-charges 1 -5 job\n",
        "ddrun-charges 1 x job\n",
        "ddrun-charges 1 1234567890123456 job\n",
        "ddrun-charges 1 5  job\n",
        "ddrun-charges 1 5 job\n1 2 0 1 250 600 node3\tboom",
        "ddrun-charges 1 5 job\nhello\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *found = NULL;
        uint64_t age;
        if (charges_file_parse(rows[i], "job", 10, &found, &age) != -EPROTO || found != NULL)
            fail_msg("'%s' is accepted", rows[i]);
    }
}

/* Start a daemon of nodes n0, n1, … to which node `from` brings charges. */
static void start_with(struct bed *b, const struct rdzv_cfg *cfg, int from, const char *text)
{
    static const char *const names[] = {"n0", "n1", "n2", "n3", "n4"};
    DD_AUTO(charges) struct charges c = parsed(text, 0);
    bed_elastic(b, *cfg);
    for (int i = 0; i < cfg->expected; i++) {
        const struct rdzv_event e = {.kind = RDZV_JOIN,
                                     .id = i,
                                     .index = i,
                                     .nnodes = cfg->max_nodes,
                                     .min_nodes = cfg->min_nodes,
                                     .slots = 1,
                                     .charges = i == from ? &c : NULL,
                                     .name = names[i],
                                     .addr = i == 0 ? "" : "10.0.0.1"};
        assert_int_equal(rdzv_step(b->m, &e, b->now), 0);
    }
    if (rdzv_state(b->m) == RDZV_GATHERING)
        assert_int_equal(pass(b, 50), 0);
    assert_int_equal(rdzv_state(b->m), RDZV_RUNNING);
}

static void a_successor_knows_the_charges(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 4, 3600 * UINT64_C(1000000000));
    struct rdzv_charges c;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(CHARGES_BYTES);
    (void)state;
    start(&b, &cfg);
    fail_rounds(&b, 1, 1, 10);
    b.now += UINT64_C(2000000000);
    assert_int_equal(rdzv_charges_format(b.m, b.now, &out), 0);
    assert_string_equal(dd_buf_str(&out), "1 1 1 0 2000 0 n1\tmine\n");
    bed_free(&b);
    start_with(&b, &cfg, 2, dd_buf_str(&out)); /* its clock has just begun */
    assert_true(rdzv_charges(b.m, 1, b.now, &c));
    assert_int_equal(c.n, 1);
    assert_string_equal(c.why, "mine");
    assert_in_range(c.age_ns, UINT64_C(2000000000), UINT64_C(2000001000));
    fail_rounds(&b, 1, 1, 10); /* the second one within the window */
    assert_string_equal(seats(&b), "0 3 2");
    assert_true(rdzv_charges(b.m, 1, b.now, &c));
    assert_int_equal(c.n, 2);
    assert_string_equal(c.left_out, "2 failures within --blame-window began there");
    bed_free(&b);
}

/* n2 was left out, and n7 has not joined the successor: both remain known. */
static void a_successor_leaves_out_the_same_node(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(3, 3, 3, 3600 * UINT64_C(1000000000));
    struct rdzv_charges c;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(CHARGES_BYTES);
    (void)state;
    start_with(&b, &cfg, 0, "-1 2 0 1 5000 9000 n2\tecc\n3 1 1 0 6000 0 n7\tlost n7\n");
    assert_true(rdzv_charges(b.m, 2, b.now, &c));
    assert_string_equal(c.why, "ecc");
    assert_int_equal(c.n, 2);
    assert_true(rdzv_charges_of_absent(b.m, 0, b.now, &c));
    assert_string_equal(c.name, "n7");
    assert_false(rdzv_charges_of_absent(b.m, 1, b.now, &c));
    assert_int_equal(rdzv_charges_format(b.m, b.now, &out), 0);
    assert_string_equal(dd_buf_str(&out),
                        "2 2 0 0 5000 9000 n2\tecc\n3 1 1 0 6000 0 n7\tlost n7\n");
    bed_free(&b);
}

static void a_node_that_a_user_drains_is_left_out_with_the_reason(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_blame(2, 3, 3, 0);
    const struct rdzv_event e = {.kind = RDZV_DRAIN, .id = 2, .text = "drained by ddctl on n0"};
    struct rdzv_charges c;
    (void)state;
    start(&b, &cfg);
    assert_int_equal(rdzv_step(b.m, &e, b.now), 0);
    end_round(&b);
    assert_true(rdzv_charges(b.m, 2, b.now, &c));
    assert_int_equal(c.n, 0);
    assert_string_equal(c.left_out, "drained by ddctl on n0");
    bed_free(&b);
}

/* ---- progress ---- */

static void reaches(struct bed *b, int id, int64_t step)
{
    const struct rdzv_event e = {
        .kind = RDZV_PROGRESS, .id = id, .round = rdzv_round(b->m), .step = step};
    assert_int_equal(rdzv_step(b->m, &e, b->now), 0);
}

static int64_t reached(const struct bed *b)
{
    int stuck;
    return rdzv_step_reached(b->m, &stuck);
}

static void restarts_without_a_new_step_end_the_job(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_rules(2, 2, 2);
    int stuck;
    (void)state;
    cfg.progress_restarts = 2;
    start(&b, &cfg);
    assert_int_equal(reached(&b), -1);
    reaches(&b, 0, 99);
    reaches(&b, 1, 100);
    assert_int_equal(reached(&b), 100);
    fail_rounds(&b, 0, 1, 1);
    reaches(&b, 0, 100); /* of the second round: not new */
    fail_rounds(&b, 0, 1, 1);
    assert_int_equal(rdzv_step_reached(b.m, &stuck), 100);
    assert_int_equal(stuck, 1);
    reaches(&b, 1, 101); /* of the third one: new */
    fail_rounds(&b, 0, 3, 1);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_code(b.m), 93);
    assert_true(rdzv_code_is_ruled(b.m));
    assert_non_null(strstr(rdzv_verdict(b.m), "2 restarts in a row without a new step"));
    assert_non_null(strstr(rdzv_verdict(b.m), "101"));
    assert_int_equal(rdzv_restarts(b.m), 4);
    bed_free(&b);
}

static void without_a_limit_any_number_of_restarts_may_reach_no_step(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_rules(2, 2, 2);
    (void)state;
    start(&b, &cfg);
    fail_rounds(&b, 0, 9, 1);
    assert_int_equal(rdzv_state(b.m), RDZV_RUNNING);
    fail_rounds(&b, 0, 1, 1);
    assert_int_equal(rdzv_code(b.m), 1);
    assert_string_equal(rdzv_verdict(b.m), "");
    bed_free(&b);
}

static void steps_of_other_rounds_and_of_spares_do_not_count(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_rules(2, 2, 3);
    (void)state;
    cfg.progress_restarts = 2;
    start(&b, &cfg);
    reaches(&b, 2, 7);
    assert_int_equal(reached(&b), -1);
    const struct rdzv_event old = {.kind = RDZV_PROGRESS, .id = 0, .round = 5, .step = 7};
    assert_int_equal(rdzv_step(b.m, &old, b.now), 0);
    assert_int_equal(reached(&b), -1);
    reaches(&b, 1, 7);
    assert_int_equal(reached(&b), 7);
    fails(&b, 1, 1);
    reaches(&b, 1, 9); /* while the round is being stopped */
    assert_int_equal(reached(&b), 9);
    end_round(&b);
    assert_int_equal(reached(&b), 9);
    bed_free(&b);
}

static void a_step_is_valid_in_every_state(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_rules(2, 2, 2);
    (void)state;
    bed_elastic(&b, cfg);
    assert_int_equal(join(&b, 0, 0, 2, node(1, "n0", "")), 0);
    reaches(&b, 0, 5); /* before the first round: ignored */
    assert_int_equal(join(&b, 1, 1, 2, node(1, "n1", "10.0.0.1")), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_RUNNING);
    assert_int_equal(reached(&b), -1);
    end_round(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    reaches(&b, 0, 5);
    assert_int_equal(reached(&b), -1);
    bed_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_are_read_and_written),
        cmocka_unit_test(invalid_rules_change_nothing),
        cmocka_unit_test(any_rules_fit_into_their_buffer),
        cmocka_unit_test(a_code_to_stop_ends_the_job_with_it),
        cmocka_unit_test(a_code_to_stop_counts_also_as_the_second_failure),
        cmocka_unit_test(a_code_without_a_rule_restarts),
        cmocka_unit_test(no_rule_applies_to_a_round_that_ddrun_stops_to_grow),
        cmocka_unit_test(a_spare_takes_the_place_of_a_moved_node),
        cmocka_unit_test(a_moved_node_is_a_spare_of_later_rounds),
        cmocka_unit_test(without_a_spare_no_node_is_left_out),
        cmocka_unit_test(one_spare_replaces_one_node),
        cmocka_unit_test(a_node_that_the_majority_needs_stays),
        cmocka_unit_test(a_moved_node_replaces_one_that_is_lost),
        cmocka_unit_test(errors_of_peers_are_remote),
        cmocka_unit_test(consequences_in_the_report_are_remote),
        cmocka_unit_test(the_earliest_failure_of_a_round_is_charged),
        cmocka_unit_test(what_a_stop_may_have_caused_is_not_charged),
        cmocka_unit_test(a_lost_node_is_charged_unless_it_left),
        cmocka_unit_test(the_failure_that_ends_the_job_is_charged),
        cmocka_unit_test(a_stop_request_is_charged_to_no_node),
        cmocka_unit_test(a_charge_names_the_lost_node),
        cmocka_unit_test(a_node_with_two_charges_within_the_window_is_replaced),
        cmocka_unit_test(without_a_window_no_node_is_replaced),
        cmocka_unit_test(an_elastic_job_without_a_spare_loses_no_node_by_blame),
        cmocka_unit_test(charges_grow_older),
        cmocka_unit_test(invalid_charges_are_refused),
        cmocka_unit_test(any_charges_fit_into_their_buffer),
        cmocka_unit_test(a_file_of_charges_is_read_as_it_was_written),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(a_successor_knows_the_charges),
        cmocka_unit_test(a_successor_leaves_out_the_same_node),
        cmocka_unit_test(a_node_that_a_user_drains_is_left_out_with_the_reason),
        cmocka_unit_test(restarts_without_a_new_step_end_the_job),
        cmocka_unit_test(without_a_limit_any_number_of_restarts_may_reach_no_step),
        cmocka_unit_test(steps_of_other_rounds_and_of_spares_do_not_count),
        cmocka_unit_test(a_step_is_valid_in_every_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
