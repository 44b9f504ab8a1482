/* The round machine, and messages that arrive in a state that does not expect them. */
#include "rdzv_bed.h"

#include <signal.h>

/* Messages may cross: a message that the current state does not expect is no error. */
static void machine_ignores_events_that_come_too_late(void **state)
{
    (void)state;
    static const struct {
        enum rdzv_state in;
        enum rdzv_event_kind event;
    } rows[] = {
        {RDZV_GATHERING, RDZV_STARTED},
        {RDZV_GATHERING, RDZV_SUCCESS_CRITERIA_MET},
        {RDZV_GATHERING, RDZV_EXIT},
        {RDZV_GATHERING, RDZV_DONE},
        {RDZV_RUNNING, RDZV_TIME},
        {RDZV_RUNNING, RDZV_PROBE_RESULT},
        {RDZV_STOPPING, RDZV_SUCCESS_CRITERIA_MET},
        {RDZV_STOPPING, RDZV_EXIT},
        {RDZV_STOPPING, RDZV_TIME},
        {RDZV_STOPPING, RDZV_PROBE_RESULT},
        {RDZV_FINISHED, RDZV_STARTED},
        {RDZV_FINISHED, RDZV_SUCCESS_CRITERIA_MET},
        {RDZV_FINISHED, RDZV_EXIT},
        {RDZV_FINISHED, RDZV_DONE},
        {RDZV_FINISHED, RDZV_STOP_REQUEST},
        {RDZV_FINISHED, RDZV_TIME},
        {RDZV_FINISHED, RDZV_DRAIN},
        {RDZV_FINISHED, RDZV_PROBE_RESULT},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct bed b;
        bed_make(&b, 2, 0, "node[1-2]");
        assert_int_equal(join(&b, 0, 0, 2, node(1, "node1", "")), 0);
        if (rows[i].in != RDZV_GATHERING)
            assert_int_equal(join(&b, 1, 1, 2, node(1, "node2", "")), 0);
        if (rows[i].in == RDZV_STOPPING || rows[i].in == RDZV_FINISHED)
            assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 3, 0), 0);
        for (int id = 0; id < 2 && rows[i].in == RDZV_FINISHED; id++)
            assert_int_equal(event(&b, RDZV_DONE, id, 0, 0, 0), 0);
        assert_int_equal(rdzv_state(b.m), rows[i].in);
        (void)actions(&b);
        assert_int_equal(event(&b, rows[i].event, 0, 0, 0, 0), 0);
        assert_string_equal(actions(&b), "");
        assert_int_equal(rdzv_state(b.m), rows[i].in);
        bed_free(&b);
    }
}

static void machine_takes_what_comes_while_it_stops_a_round(void **state)
{
    (void)state;
    struct bed b;
    const struct rdzv_cfg cfg = {.min_nodes = 1, .max_nodes = 4, .max_restarts = 3};
    bed_elastic(&b, cfg);
    for (int id = 0; id < 3; id++)
        assert_int_equal(join(&b, id, id, 4, node(1, "n", "")), 0);
    assert_int_equal(event(&b, RDZV_DRAIN, 2, 0, 0, 0), 0); /* before the first round */
    (void)actions(&b);
    assert_int_equal(pass(&b, 600), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 3, 0), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_STOPPING);
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_STARTED, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_STARTED, 1, 0, 0, 0), 0);
    assert_non_null(strstr(actions(&b), "commit0 commit1"));
    assert_int_equal(join(&b, 3, 3, 4, node(1, "n", "")), 0);
    assert_int_equal(rdzv_members(b.m), 4);
    assert_int_equal(event(&b, RDZV_DRAIN, 1, 0, 0, 0), 0);
    for (int id = 0; id < 2; id++)
        assert_int_equal(event(&b, RDZV_DONE, id, 0, 0, 0), 0);
    const char *said = actions(&b);
    assert_non_null(strstr(said, "plan0 plan3"));
    assert_null(strstr(said, "plan1"));
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 0, 0, 0, SIGTERM), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 3, 0, 0, 0), 0);
    assert_int_equal(rdzv_state(b.m), RDZV_FINISHED);
    assert_int_equal(event(&b, RDZV_LOST, 3, 0, 0, 0), 0);
    assert_int_equal(rdzv_members(b.m), 3);
    bed_free(&b);
}

/* The daemon's node was started again during a round: it knows its members, but has not run it. */
static void machine_of_a_later_daemon_begins_nothing_while_nobody_remembers_a_round(void **state)
{
    (void)state;
    struct bed b;
    int last[] = {0, 1, 2};
    const struct rdzv_members known = {.epoch = 0, .round = 0, .tie = 0, .n = 3, .index = last};
    struct rdzv_event e = {
        .kind = RDZV_JOIN, .id = 1, .index = 1, .nnodes = 3, .slots = 1, .addr = "h", .name = "n"};
    const struct rdzv_cfg cfg = {
        .min_nodes = 1, .max_nodes = 3, .epoch = rdzv_next_epoch(0, 1), .tie = 1};
    bed_elastic(&b, cfg);
    assert_int_equal(rdzv_step(b.m, &e, 0), 0);
    assert_int_equal(pass(&b, 30), 0); /* no other node joins before the deadline */
    assert_string_equal(actions(&b), "finish1!");
    bed_free(&b);
    bed_elastic(&b, cfg);
    assert_int_equal(rdzv_step(b.m, &e, 0), 0);
    e.committed = e.planned = &known;
    for (e.id = e.index = 0; e.id < 3; e.index = e.id += 2)
        assert_int_equal(rdzv_step(b.m, &e, 20), 0);
    assert_non_null(strstr(actions(&b), "plan1")); /* two nodes with the round: a majority */
    bed_free(&b);
}

static void machine_commits_a_round_when_all_its_own_members_have_started(void **state)
{
    (void)state;
    struct bed b;
    static const char *const names[] = {"node0", "node1", "node2"};
    bed_elastic(&b, (struct rdzv_cfg){.min_nodes = 2, .max_nodes = 2, .expected = 3});
    for (int i = 0; i < 3; i++)
        assert_int_equal(join(&b, i, i, 2, node(1, names[i], "h")), 0);
    assert_int_equal(event(&b, RDZV_STARTED, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_STARTED, 0, 0, 0, 0), 0); /* counts once */
    assert_string_equal(actions(&b), "plan0 plan1");
    assert_int_equal(event(&b, RDZV_STARTED, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "commit0 commit1 round2");
    assert_int_equal(event(&b, RDZV_DRAIN, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "exclude1 note0 stop0 stop1 note0 drop-1 plan0 plan2");
    assert_int_equal(rdzv_node_rank(b.m, 0), 0);
    assert_int_equal(rdzv_node_rank(b.m, 1), -1);
    assert_int_equal(rdzv_node_rank(b.m, 2), 1);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0); /* it had started in the last round */
    assert_int_equal(event(&b, RDZV_STARTED, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_STARTED, 2, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "commit0 commit2");
    bed_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_ignores_events_that_come_too_late),
        cmocka_unit_test(machine_commits_a_round_when_all_its_own_members_have_started),
        cmocka_unit_test(machine_of_a_later_daemon_begins_nothing_while_nobody_remembers_a_round),
        cmocka_unit_test(machine_takes_what_comes_while_it_stops_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
