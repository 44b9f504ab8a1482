/* rdzv: nodes that the scheduler takes out of service, and what the round machine does about them.
 */
#include "rdzv_bed.h"

#include "base/auto.h"
#include "rdzv/marks.h"

#include <errno.h>
#include <signal.h>

/* ---- the list ---- */

static void marks_are_found_by_name(void **state)
{
    DD_AUTO(marks) struct rdzv_marks m = {0};
    (void)state;
    assert_int_equal(rdzv_marks_parse(&m, "n2\ttwo\nn10\tten\nn3.net\tthree\nn2\tagain"), 0);
    assert_int_equal(m.n, 3);
    assert_non_null(rdzv_marks_why(&m, "n2"));
    assert_string_equal(rdzv_marks_why(&m, "n10"), "ten");
    assert_string_equal(rdzv_marks_why(&m, "n10.net"), "ten");
    assert_string_equal(rdzv_marks_why(&m, "n3"), "three");
    assert_string_equal(rdzv_marks_why(&m, "n3.net"), "three");
    static const char *const others[] = {"n1", "n", "n100", "n3.other", "", ".", "n3."};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (rdzv_marks_why(&m, others[i]) != NULL)
            fail_msg("'%s' is marked", others[i]);
}

static void invalid_marks_are_refused(void **state)
{
    static const char *const rows[] = {"n1",          "n1\t",     "\twhy",
                                       "n1\twhy\n\n", "n1\ta\tb", "n\r\twhy"};
    DD_AUTO(marks) struct rdzv_marks m = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rdzv_marks_parse(&m, rows[i]) != -EPROTO || m.n != 0)
            fail_msg("row %zu", i);
    assert_int_equal(rdzv_marks_parse(&m, ""), 0);
    assert_int_equal(m.n, 0);
}

/* ---- the machine ---- */

enum { LEAVE = 60 };

static struct rdzv_cfg with_marks(int min, int max, int expected)
{
    return (struct rdzv_cfg){.min_nodes = min,
                             .max_nodes = max,
                             .expected = expected,
                             .capacity = 5,
                             .max_restarts = 2,
                             .leave_signal = SIGUSR1,
                             .leave_ns = LEAVE};
}

static int joins(struct bed *b, const struct rdzv_cfg *cfg, int id)
{
    static const char *const names[] = {"n0", "n1", "n2", "n3", "n4"};
    const struct rdzv_event e = {.kind = RDZV_JOIN,
                                 .id = id,
                                 .index = id,
                                 .nnodes = cfg->max_nodes,
                                 .min_nodes = cfg->min_nodes,
                                 .slots = 1,
                                 .name = names[id],
                                 .addr = id == 0 ? "" : "10.0.0.1"};
    return rdzv_step(b->m, &e, b->now);
}

static void run_round(struct bed *b)
{
    for (int k = 0; k < rdzv_planned(b->m)->n; k++)
        assert_int_equal(event(b, RDZV_STARTED, rdzv_id_of_rank(b->m, k), 0, 0, 0), 0);
}

static void start(struct bed *b, const struct rdzv_cfg *cfg, int n)
{
    bed_elastic(b, *cfg);
    for (int i = 0; i < n; i++)
        assert_int_equal(joins(b, cfg, i), 0);
    if (rdzv_state(b->m) == RDZV_GATHERING)
        assert_int_equal(pass(b, 50), 0);
    assert_int_equal(rdzv_state(b->m), RDZV_RUNNING);
    run_round(b);
    (void)actions(b);
}

static const char *seats(const struct bed *b)
{
    static char out[64];
    out[0] = '\0';
    for (int k = 0; k < rdzv_planned(b->m)->n; k++)
        (void)snprintf(out + strlen(out), sizeof(out) - strlen(out), "%s%d", k > 0 ? " " : "",
                       rdzv_id_of_rank(b->m, k));
    return out;
}

static void done(struct bed *b)
{
    const int round = rdzv_round(b->m);
    for (int id = 0; id < 5; id++) {
        struct rdzv_view v;
        if (rdzv_view(b->m, id, &v) && v.part && !v.done && rdzv_round(b->m) == round)
            assert_int_equal(event(b, RDZV_DONE, id, 0, 0, 0), 0);
    }
}

static void marks(struct bed *b, const char *text)
{
    assert_int_equal(
        rdzv_step(b->m, &(struct rdzv_event){.kind = RDZV_MARKS, .id = -1, .text = text}, b->now),
        0);
}

/* The text of all notes since the last call; *ret_signals: members with SEND_SIGNAL, as digits. */
static const char *notes(struct bed *b, char ret_signals[8])
{
    struct rdzv_action a;
    size_t n = 0;
    b->log[0] = '\0';
    while (rdzv_next_action(b->m, &a)) {
        if (a.kind == RDZV_SEND_NOTE)
            (void)snprintf(b->log + strlen(b->log), sizeof(b->log) - strlen(b->log), "%s|", a.text);
        if (a.kind == RDZV_SEND_SIGNAL && n < 7) {
            assert_int_equal(a.signal, SIGUSR1);
            ret_signals[n++] = (char)('0' + a.id);
        }
    }
    ret_signals[n] = '\0';
    return b->log;
}

static void a_spare_takes_the_place_of_a_marked_node(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    struct rdzv_view v;
    char signals[8];
    (void)state;
    start(&b, &cfg, 3);
    assert_true(rdzv_timer(b.m) == RDZV_NEVER);
    marks(&b, "n1\tbeing drained");
    assert_string_equal(notes(&b, signals),
                        "n1 is being drained|sending SIGUSR1 to all workers; restarting without n1 "
                        "in 6e-08 s|");
    assert_string_equal(signals, "01");
    assert_true(rdzv_view(b.m, 1, &v));
    assert_string_equal(v.mark, "being drained");
    assert_int_equal(rdzv_timer(b.m), b.now + LEAVE);
    marks(&b, "n1\tbeing drained"); /* the next poll */
    assert_string_equal(notes(&b, signals), "");
    b.now = rdzv_timer(b.m) - 1;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "");
    b.now++;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    done(&b);
    assert_string_equal(seats(&b), "0 2");
    assert_int_equal(rdzv_restarts(b.m), 0);
    assert_int_equal(rdzv_round(b.m), 1);
    run_round(&b);
    (void)actions(&b);
    marks(&b, "n1\tbeing drained");
    marks(&b, ""); /* it is a spare again */
    assert_string_equal(notes(&b, signals), "n1 is in service again|");
    marks(&b, "n2\tmarked as failing");
    b.now = rdzv_timer(b.m);
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    done(&b);
    assert_string_equal(seats(&b), "0 1");
    bed_free(&b);
}

static void an_elastic_job_becomes_smaller(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 4, 4);
    (void)state;
    start(&b, &cfg, 4);
    marks(&b, "n2\tbeing drained");
    b.now = rdzv_timer(b.m);
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    done(&b);
    assert_string_equal(seats(&b), "0 1 3");
    run_round(&b);
    (void)actions(&b);
    marks(&b, ""); /* the next round, whatever its cause, has it again */
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 1, 0), 0);
    done(&b);
    assert_string_equal(seats(&b), "0 1 3 2");
    assert_int_equal(rdzv_restarts(b.m), 1);
    bed_free(&b);
}

/* Without spares, or with too few nodes for the majority, the workers are not disturbed. */
static void a_job_that_needs_the_node_goes_on(void **state)
{
    static const struct {
        int min, max, expected;
        const char *marks;
    } rows[] = {
        {3, 3, 3, "n1\tx"},
        {2, 2, 3, "n0\tx\nn1\tx\nn2\tx"},
        {3, 4, 4, "n1\tx\nn2\tx"},
        {1, 4, 4, "n1\tx\nn2\tx\nn3\tx"}, /* the others would be a majority */
        {1, 2, 2, "n0\tx"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bed b;
        const struct rdzv_cfg cfg = with_marks(rows[i].min, rows[i].max, rows[i].expected);
        char signals[8];
        start(&b, &cfg, rows[i].expected);
        marks(&b, rows[i].marks);
        if (strstr(notes(&b, signals), "the job stays on") == NULL || signals[0] != '\0' ||
            rdzv_timer(b.m) != RDZV_NEVER)
            fail_msg("row %zu: %s%s", i, b.log, signals);
        done(&b);
        assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
        assert_int_equal(rdzv_code(b.m), 0);
        bed_free(&b);
    }
}

/* One spare, two marked nodes: one of them is left. Then the job stays. */
static void as_many_nodes_are_left_as_spares_replace(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(3, 3, 4);
    char signals[8];
    (void)state;
    start(&b, &cfg, 4);
    marks(&b, "n1\tx");
    marks(&b, "n1\tx\nn2\tx");
    b.now = rdzv_timer(b.m);
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    done(&b);
    assert_int_equal(rdzv_planned(b.m)->n, 3);
    assert_int_equal(rdzv_round(b.m), 1);
    (void)actions(&b);
    run_round(&b);
    marks(&b, "n1\tx\nn2\tx");
    (void)notes(&b, signals);
    assert_string_equal(signals, "");
    assert_true(rdzv_timer(b.m) == RDZV_NEVER);
    bed_free(&b);
}

static void a_spare_that_joins_later_takes_the_place(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    start(&b, &cfg, 2);
    marks(&b, "n1\tx");
    assert_true(rdzv_timer(b.m) == RDZV_NEVER);
    assert_int_equal(joins(&b, &cfg, 2), 0);
    assert_int_equal(rdzv_timer(b.m), b.now + LEAVE);
    bed_free(&b);
}

/* The mark comes while the workers start, or before the first round. */
static void a_marked_node_that_joins_later_ends_no_round(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_marks(1, 3, 2);
    (void)state;
    cfg.grow = RDZV_GROW_NOW;
    start(&b, &cfg, 2);
    marks(&b, "n2\tx");
    assert_int_equal(joins(&b, &cfg, 2), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_RUNNING);
    assert_int_equal(joins(&b, &cfg, 3), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_STOPPING);
    bed_free(&b);
}

static void a_mark_counts_from_the_start_of_the_workers_on(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    bed_elastic(&b, cfg);
    assert_int_equal(joins(&b, &cfg, 0), 0);
    marks(&b, "n1\tx");
    assert_int_equal(joins(&b, &cfg, 2), 0);
    assert_int_equal(joins(&b, &cfg, 1), 0);
    assert_string_equal(seats(&b), "0 2");
    marks(&b, "n2\tx");
    assert_true(rdzv_timer(b.m) == RDZV_NEVER);
    run_round(&b);
    assert_int_equal(rdzv_timer(b.m), b.now + LEAVE);
    bed_free(&b);
}

static void a_node_that_is_marked_before_the_first_round_is_left_out(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 4, 4);
    (void)state;
    bed_elastic(&b, cfg);
    for (int id = 0; id < 3; id++)
        assert_int_equal(joins(&b, &cfg, id), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_GATHERING);
    marks(&b, "n1\tx");
    assert_int_equal(joins(&b, &cfg, 3), 0);
    if (rdzv_state(b.m) == RDZV_GATHERING)
        assert_int_equal(pass(&b, 50), 0);
    assert_string_equal(seats(&b), "0 2 3");
    bed_free(&b);
}

static void a_node_that_is_marked_while_workers_stop_is_left_out(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 4, 4);
    (void)state;
    start(&b, &cfg, 4);
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 1, 0), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_STOPPING);
    marks(&b, "n2\tx");
    done(&b);
    assert_string_equal(seats(&b), "0 1 3");
    bed_free(&b);
}

static void a_job_that_has_ended_ignores_marks(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    start(&b, &cfg, 3);
    done(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    (void)actions(&b);
    marks(&b, "n1\tx");
    assert_string_equal(actions(&b), "");
    bed_free(&b);
}

static void a_mark_that_is_taken_back_in_time_has_no_effect(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    start(&b, &cfg, 3);
    marks(&b, "n1\tx");
    assert_true(rdzv_timer(b.m) != RDZV_NEVER);
    marks(&b, "");
    assert_true(rdzv_timer(b.m) == RDZV_NEVER);
    marks(&b, "n1\tx");
    assert_int_equal(rdzv_timer(b.m), b.now + LEAVE);
    bed_free(&b);
}

/* A program may save its state and exit with any code but 0; other workers may need longer. */
static void workers_that_exit_after_the_signal_have_not_failed(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    start(&b, &cfg, 3);
    marks(&b, "n1\tx");
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 3, 0), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 3, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_string_equal(seats(&b), "0 2");
    assert_int_equal(rdzv_round(b.m), 1);
    assert_int_equal(rdzv_restarts(b.m), 0);
    struct rdzv_charges c;
    assert_false(rdzv_charges(b.m, 0, b.now, &c));
    assert_true(rdzv_charges(b.m, 1, b.now, &c));
    assert_int_equal(c.n, 0);
    assert_string_equal(c.left_out, "x");
    bed_free(&b);
}

static void a_job_that_ends_after_the_signal_has_ended(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    start(&b, &cfg, 3);
    marks(&b, "n1\tx");
    done(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_code(b.m), 0);
    bed_free(&b);
}

static void rules_that_end_the_job_apply_after_the_signal(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_marks(2, 2, 3);
    (void)state;
    cfg.exit_rules.of[17] = EXIT_STOP;
    start(&b, &cfg, 3);
    marks(&b, "n1\tx");
    assert_true(rdzv_expects_exit(b.m, 3));
    assert_false(rdzv_expects_exit(b.m, 17));
    assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 17, 0), 0);
    done(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_code(b.m), 17);
    bed_free(&b);
}

/* Others have saved their state and exited before: 17 ends the job all the same. */
static void rules_that_end_the_job_apply_after_expected_exits(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_marks(3, 3, 4);
    (void)state;
    cfg.exit_rules.of[17] = EXIT_STOP;
    start(&b, &cfg, 4);
    marks(&b, "n1\tx");
    assert_int_equal(event(&b, RDZV_EXIT, 2, 0, 3, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 2, 0, 0, 0), 0);
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 17, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    done(&b);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(rdzv_code(b.m), 17);
    assert_true(rdzv_code_is_ruled(b.m));
    bed_free(&b);
}

/* A worker exited at the time `at`; the round is stopped at 100. */
static enum rdzv_state exits_around_the_stop(int code, uint64_t at)
{
    struct bed b;
    struct rdzv_cfg cfg = with_marks(2, 2, 3);
    cfg.exit_rules.of[17] = EXIT_STOP;
    start(&b, &cfg, 3);
    b.now = 100 - LEAVE;
    marks(&b, "n1\tx");
    b.now = 100;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    const struct rdzv_event e = {.kind = RDZV_EXIT, .id = 1, .code = code, .at = at, .text = ""};
    assert_int_equal(rdzv_step(b.m, &e, 110), 0);
    done(&b);
    const enum rdzv_state s = rdzv_state(b.m);
    assert_int_equal(rdzv_restarts(b.m), 0);
    bed_free(&b);
    return s;
}

static void a_rule_applies_to_exits_before_the_stop_only(void **state)
{
    (void)state;
    assert_int_equal(exits_around_the_stop(17, 99), RDZV_FINISHED);
    assert_int_equal(exits_around_the_stop(17, 101), RDZV_RUNNING);
    assert_int_equal(exits_around_the_stop(3, 99), RDZV_RUNNING);
}

static void without_a_signal_the_next_restart_leaves_the_node(void **state)
{
    struct bed b;
    struct rdzv_cfg cfg = with_marks(2, 2, 3);
    char signals[8];
    (void)state;
    cfg.leave_signal = 0;
    start(&b, &cfg, 3);
    marks(&b, "n1\tx");
    assert_string_equal(notes(&b, signals), "n1 is x|the next restart leaves out n1|");
    assert_true(rdzv_timer(b.m) == RDZV_NEVER);
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 1, 0), 0);
    done(&b);
    assert_string_equal(seats(&b), "0 2");
    assert_int_equal(rdzv_restarts(b.m), 1);
    bed_free(&b);
}

/* The daemon's node can give its place to a spare; the daemon stays. */
static void the_first_node_is_left_too(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(3, 3, 4);
    (void)state;
    start(&b, &cfg, 4);
    marks(&b, "n0\tx");
    b.now = rdzv_timer(b.m);
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    (void)actions(&b);
    done(&b);
    assert_non_null(strstr(actions(&b), "begun0"));
    assert_string_equal(seats(&b), "3 1 2");
    bed_free(&b);
}

static void nodes_with_the_same_mark_are_one_line(void **state)
{
    struct bed b;
    const struct rdzv_cfg cfg = with_marks(1, 5, 5);
    char signals[8];
    (void)state;
    start(&b, &cfg, 5);
    marks(&b, "n1\tx\nn2\tx\nn4\ty");
    assert_int_equal(strncmp(notes(&b, signals), "n[1-2] are x|n4 is y|", 21), 0);
    assert_int_equal(
        rdzv_step(b.m, &(struct rdzv_event){.kind = RDZV_MARKS, .id = -1, .text = "x"}, b.now),
        -EINVAL);
    bed_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marks_are_found_by_name),
        cmocka_unit_test(invalid_marks_are_refused),
        cmocka_unit_test(a_spare_takes_the_place_of_a_marked_node),
        cmocka_unit_test(an_elastic_job_becomes_smaller),
        cmocka_unit_test(a_job_that_needs_the_node_goes_on),
        cmocka_unit_test(as_many_nodes_are_left_as_spares_replace),
        cmocka_unit_test(a_spare_that_joins_later_takes_the_place),
        cmocka_unit_test(a_marked_node_that_joins_later_ends_no_round),
        cmocka_unit_test(a_mark_counts_from_the_start_of_the_workers_on),
        cmocka_unit_test(a_node_that_is_marked_before_the_first_round_is_left_out),
        cmocka_unit_test(a_node_that_is_marked_while_workers_stop_is_left_out),
        cmocka_unit_test(a_job_that_has_ended_ignores_marks),
        cmocka_unit_test(a_mark_that_is_taken_back_in_time_has_no_effect),
        cmocka_unit_test(workers_that_exit_after_the_signal_have_not_failed),
        cmocka_unit_test(a_job_that_ends_after_the_signal_has_ended),
        cmocka_unit_test(rules_that_end_the_job_apply_after_the_signal),
        cmocka_unit_test(rules_that_end_the_job_apply_after_expected_exits),
        cmocka_unit_test(a_rule_applies_to_exits_before_the_stop_only),
        cmocka_unit_test(without_a_signal_the_next_restart_leaves_the_node),
        cmocka_unit_test(the_first_node_is_left_too),
        cmocka_unit_test(nodes_with_the_same_mark_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
