/* rdzv: the first daemon of a job, and other daemons that may run already. */
#include "rdzv_bed.h"

/* Create the machine of a first node that may have been started again: another node may have a
 * later daemon. names: NULL if the host list is unknown. */
static void make(struct bed *b, struct rdzv_cfg cfg, const char *names)
{
    memset(b, 0, sizeof(*b));
    if (names != NULL)
        assert_int_equal(hostlist_parse(&b->nodes, names, NULL), 0);
    cfg.join_ns = 600;
    cfg.last_call_ns = 10;
    cfg.rejoin_ns = 30;
    cfg.master_port = 31000;
    cfg.nodes = b->nodes;
    cfg.probes_first = 1;
    assert_int_equal(rdzv_new(&b->m, &cfg, 0), 0);
}

static void make_with_two_of_three(struct bed *b)
{
    make(b, (struct rdzv_cfg){.min_nodes = 2, .max_nodes = 3}, "node[1-3]");
    assert_int_equal(join(b, 0, 0, 3, node(1, "node1", "")), 0);
    assert_int_equal(join(b, 1, 1, 3, node(1, "node2", "10.0.0.1")), 0);
    assert_string_equal(actions(b), "");
}

static void make_with_only_another_node(struct bed *b)
{
    make(b, (struct rdzv_cfg){.min_nodes = 1, .max_nodes = 3}, "node[1-3]");
    assert_int_equal(join(b, 1, 1, 3, node(1, "node2", "10.0.0.1")), 0);
}

static void machine_begins_with_fewer_nodes_only_after_a_probe_of_the_others(void **state)
{
    (void)state;
    struct bed b;
    make_with_two_of_three(&b);
    assert_int_equal(rdzv_timer(b.m), 10);
    b.now = 10;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "probe0");
    assert_true(rdzv_timer(b.m) == RDZV_NEVER); /* the probe has no timeout */
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_PROBE_RESULT, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    bed_free(&b);
}

static void machine_tells_its_own_node_that_a_round_begins_without_it(void **state)
{
    (void)state;
    struct bed b;
    const struct rdzv_cfg cfg = {.min_nodes = 1, .max_nodes = 2, .expected = 3, .capacity = 3};
    make(&b, cfg, NULL);
    assert_int_equal(rdzv_step(b.m,
                               &(struct rdzv_event){.kind = RDZV_JOIN,
                                                    .id = 0,
                                                    .nnodes = 2,
                                                    .slots = 1,
                                                    .name = "a",
                                                    .addr = "",
                                                    .unfit = "its disk is full"},
                               0),
                     0);
    assert_int_equal(join(&b, 1, 1, 2, node(1, "b", "10.0.0.1")), 0);
    assert_int_equal(join(&b, 2, 2, 2, node(1, "c", "10.0.0.1")), 0);
    assert_string_equal(actions(&b), "exclude0 note0 plan1 plan2 begun0");
    assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 3, 0), 0);
    assert_string_equal(actions(&b), "stop1 stop2");
    assert_true(rdzv_has_begun(b.m));
    bed_free(&b);
}

/* Two restarted spare nodes would suffice for a round although two others continue elsewhere. */
static void machine_with_spares_waits_for_the_others_until_the_last_call(void **state)
{
    (void)state;
    struct bed b;
    const struct rdzv_cfg cfg = {.min_nodes = 2, .max_nodes = 2, .expected = 4, .capacity = 4};
    make(&b, cfg, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(join(&b, i, i, 2, node(1, "n", i > 0 ? "10.0.0.1" : "")), 0);
    assert_string_equal(actions(&b), "");
    b.now = rdzv_timer(b.m);
    assert_int_equal(b.now, 10);
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_PROBE_RESULT, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "probe0 plan0 plan1");
    bed_free(&b);
    make(&b, cfg, NULL); /* all nodes have joined: none has another daemon */
    for (int i = 0; i < 4; i++)
        assert_int_equal(join(&b, i, i, 2, node(1, "n", i > 0 ? "10.0.0.1" : "")), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    bed_free(&b);
}

static void machine_with_all_nodes_waits_for_no_probe(void **state)
{
    (void)state;
    struct bed b;
    make_with_two_of_three(&b);
    assert_int_equal(join(&b, 2, 2, 3, node(1, "node3", "10.0.0.1")), 0);
    assert_string_equal(actions(&b), "plan0 plan1 plan2");
    bed_free(&b);
    make_with_two_of_three(&b); /* the third node joins during the probe */
    b.now = 10;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_int_equal(join(&b, 2, 2, 3, node(1, "node3", "10.0.0.1")), 0);
    assert_string_equal(actions(&b), "probe0 plan0 plan1 plan2");
    assert_int_equal(event(&b, RDZV_PROBE_RESULT, 0, 0, 0, 0), 0); /* too late: no effect */
    assert_string_equal(actions(&b), "");
    bed_free(&b);
}

static void machine_probes_again_when_nodes_left_during_the_probe(void **state)
{
    (void)state;
    struct bed b;
    make_with_two_of_three(&b);
    b.now = 10;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_PROBE_RESULT, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "probe0");
    assert_int_equal(join(&b, 1, 2, 3, node(1, "node3", "10.0.0.1")), 0);
    assert_int_equal(rdzv_timer(b.m), 20);
    b.now = 20;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "probe0");
    bed_free(&b);
}

/* The first node was lost with its daemon; its next daemon begins anew, with epoch 0 again. */
static void machine_passes_over_rounds_of_a_daemon_before_it(void **state)
{
    (void)state;
    struct bed b;
    int index[] = {0, 1, 2};
    const struct rdzv_members planned = {.epoch = 0, .round = 5, .n = 3, .index = index};
    make_with_two_of_three(&b);
    b.now = 10;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_PROBE_RESULT, 0, 0, 0, 0), 0);
    assert_int_equal(rdzv_step(b.m,
                               &(struct rdzv_event){.kind = RDZV_JOIN,
                                                    .id = 2,
                                                    .index = 2,
                                                    .nnodes = 3,
                                                    .slots = 1,
                                                    .name = "node3",
                                                    .addr = "10.0.0.1",
                                                    .planned = &planned},
                               b.now),
                     0);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(rdzv_round(b.m), 6);
    bed_free(&b);
}

/* The health check of the own node may take long: until then the timer must not be in the past. */
static void machine_waits_for_its_own_node_which_is_to_probe(void **state)
{
    (void)state;
    struct bed b;
    make_with_only_another_node(&b);
    b.now = 10;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(rdzv_timer(b.m), 600);
    assert_int_equal(join(&b, 0, 0, 3, node(1, "node1", "")), 0);
    assert_string_equal(actions(&b), "probe0");
    bed_free(&b);
}

static void machine_gives_up_when_its_own_node_leaves_before_it_has_probed(void **state)
{
    (void)state;
    struct bed b;
    make_with_only_another_node(&b);
    b.now = 10;
    assert_int_equal(join(&b, 0, 0, 3, node(1, "node1", "")), 0);
    assert_string_equal(actions(&b), "probe0");
    assert_int_equal(event(&b, RDZV_LOST, 0, 0, 0, 0), 0);
    assert_int_equal(rdzv_timer(b.m), 600);
    b.now = 600;
    assert_int_equal(event(&b, RDZV_TIME, -1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish1!");
    assert_int_equal(rdzv_code(b.m), 1);
    bed_free(&b);
}

/* Without it, one of the two nodes would be no majority after the loss of the other. */
static void machine_waits_for_its_own_node_before_the_first_round(void **state)
{
    (void)state;
    struct bed b;
    const struct rdzv_cfg two_of_three = {.min_nodes = 2, .max_nodes = 2, .expected = 3};
    bed_elastic(&b, two_of_three);
    assert_int_equal(join(&b, 1, 1, 2, node(1, "b", "10.0.0.2")), 0);
    assert_int_equal(join(&b, 2, 2, 2, node(1, "c", "10.0.0.3")), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(rdzv_timer(b.m), 50); /* the last call */
    assert_int_equal(join(&b, 0, 0, 2, node(1, "a", "10.0.0.1")), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    bed_free(&b);
    bed_elastic(&b, two_of_three);
    assert_int_equal(join(&b, 1, 1, 2, node(1, "b", "10.0.0.2")), 0);
    assert_int_equal(join(&b, 2, 2, 2, node(1, "c", "10.0.0.3")), 0);
    assert_int_equal(pass(&b, 50), 0);
    assert_string_equal(actions(&b), "plan1 plan2");
    bed_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_begins_with_fewer_nodes_only_after_a_probe_of_the_others),
        cmocka_unit_test(machine_tells_its_own_node_that_a_round_begins_without_it),
        cmocka_unit_test(machine_with_spares_waits_for_the_others_until_the_last_call),
        cmocka_unit_test(machine_with_all_nodes_waits_for_no_probe),
        cmocka_unit_test(machine_probes_again_when_nodes_left_during_the_probe),
        cmocka_unit_test(machine_passes_over_rounds_of_a_daemon_before_it),
        cmocka_unit_test(machine_waits_for_its_own_node_which_is_to_probe),
        cmocka_unit_test(machine_waits_for_its_own_node_before_the_first_round),
        cmocka_unit_test(machine_gives_up_when_its_own_node_leaves_before_it_has_probed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
