/* rdzv: sizes, plans and the round machine. */
#include "rdzv_bed.h"

#include "rdzv/restart_ages.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

/* ---- sizes ---- */

static void sizes_are_written_and_read_as_slurm_does(void **state)
{
    (void)state;
    const int sizes[] = {2, 2, 2, 1};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(100);
    assert_int_equal(plan_sizes_format(&out, sizes, 4), 0);
    assert_string_equal(dd_buf_str(&out), "2(x3),1");
    DD_AUTO(free) int *back = NULL;
    int n;
    assert_int_equal(plan_sizes_parse(&back, &n, "2(x3),1", NULL), 0);
    assert_int_equal(n, 4);
    assert_memory_equal(back, sizes, sizeof(sizes));
}

static void sizes_refuse_what_is_none(void **state)
{
    (void)state;
    static const char *const rows[] = {"",    "0", "-1",     "2(3)",      "2(x",         "2(x0)",
                                       "2()", "x", "2(x3)4", "2(x65537)", "2(x65536),1", "4097",
                                       "2(x3"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int *back = NULL;
        int n;
        struct dd_err err = {0};
        if (plan_sizes_parse(&back, &n, rows[i], &err) >= 0)
            fail_msg("'%s' was taken", rows[i]);
        assert_true(err.text[0] != '\0');
        free(back);
    }
}

/* ---- the machine ---- */

static void start_two(struct bed *b, int max_restarts)
{
    bed_make(b, 2, max_restarts, "node[1-2]");
    assert_int_equal(join(b, 0, 0, 2, node(2, "node1", "")), 0);
    assert_int_equal(join(b, 1, 1, 2, node(3, "node2", "10.0.0.1")), 0);
    assert_string_equal(actions(b), "plan0 plan1");
}

static void machine_welcomes_the_node_of_another_daemon(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 2, 0, "node[1-2]");
    assert_int_equal(rdzv_step(b.m,
                               &(struct rdzv_event){.kind = RDZV_JOIN,
                                                    .id = 0,
                                                    .index = 0,
                                                    .nnodes = 2,
                                                    .slots = 1,
                                                    .name = "node1",
                                                    .addr = "10.0.0.2",
                                                    .elsewhere = true},
                               0),
                     0);
    assert_string_equal(actions(&b), "welcome0");
    bed_free(&b);
}

static void machine_plans_blocks_in_host_list_order_whatever_the_order_of_arrival(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 3, 0, "node[1-3]");
    assert_int_equal(join(&b, 0, 2, 3, node(1, "node3", "10.0.0.1")), 0);
    assert_int_equal(join(&b, 1, 0, 3, node(4, "node1", "")), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(join(&b, 2, 1, 3, node(2, "node2", "10.9.0.1")), 0);
    assert_string_equal(actions(&b), "plan1 plan2 plan0");
    static const struct {
        int id, node_rank, first, local;
        const char *addr;
    } rows[] = {
        {1, 0, 0, 4, "10.9.0.1"}, /* the host's address, as another node reached it */
        {2, 1, 4, 2, "10.9.0.1"},
        {0, 2, 6, 1, "10.0.0.1"}, /* the host's address, as this node reached it */
    };
    for (size_t i = 0; i < 3; i++) {
        DD_AUTO(plan) struct plan p = {0};
        assert_int_equal(rdzv_plan(b.m, rows[i].id, &p), 0);
        assert_int_equal(p.node_rank, rows[i].node_rank);
        assert_int_equal(p.first_rank, rows[i].first);
        assert_int_equal(p.local_size, rows[i].local);
        assert_int_equal(p.world_size, 7);
        assert_string_equal(p.master_addr, rows[i].addr);
        assert_int_equal(p.master_port, 31000);
        assert_string_equal(p.nodes, "node[1-3]");
    }
    bed_free(&b);
}

static void machine_places_nodes_without_a_rank_by_name(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 3, 0, "host");
    assert_int_equal(join(&b, 0, -1, 3, node(1, "n10", "h")), 0);
    assert_int_equal(join(&b, 1, 0, 3, node(1, "host", "")), 0);
    assert_int_equal(join(&b, 2, -1, 3, node(1, "n9", "h")), 0);
    assert_int_equal(rdzv_id_of_rank(b.m, 0), 1);
    assert_int_equal(rdzv_id_of_rank(b.m, 1), 2);
    assert_int_equal(rdzv_id_of_rank(b.m, 2), 0);
    bed_free(&b);
}

static void machine_refuses_who_does_not_fit(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 2, 0, "node[1-2]");
    assert_int_equal(join(&b, 0, 0, 2, node(1, "node1", "")), 0);
    assert_int_equal(join(&b, 1, 0, 2, node(1, "node2", "h")), 0);
    struct rdzv_action a;
    assert_true(rdzv_next_action(b.m, &a));
    assert_int_equal(a.kind, RDZV_SEND_REFUSE);
    assert_non_null(strstr(a.text, "node rank 0 is used"));
    assert_non_null(strstr(a.text, "node1"));
    assert_int_equal(join(&b, 1, 1, 3, node(1, "node2", "h")), 0);
    assert_true(rdzv_next_action(b.m, &a));
    assert_non_null(strstr(a.text, "at most 3 nodes"));
    assert_int_equal(join(&b, 1, 2, 2, node(1, "node2", "h")), 0);
    assert_string_equal(actions(&b), "refuse1");
    assert_int_equal(rdzv_members(b.m), 1);
    assert_int_equal(join(&b, 2, 1, 2, node(1, "x", "h")), -EINVAL); /* no such id */
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 1, 0), 0);           /* no round yet */
    assert_string_equal(actions(&b), "");
    bed_free(&b);
}

static void machine_lets_a_node_come_again_before_the_start(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 2, 0, "node[1-2]");
    assert_int_equal(join(&b, 1, 1, 2, node(1, "node2", "h")), 0);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_int_equal(rdzv_members(b.m), 0);
    assert_int_equal(join(&b, 1, 1, 2, node(1, "node2", "h")), 0);
    assert_int_equal(join(&b, 0, 0, 2, node(1, "node1", "")), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    bed_free(&b);
}

static void machine_names_the_missing_at_the_deadline(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 4, 0, "node[1-4]");
    assert_int_equal(join(&b, 0, 0, 4, node(1, "node1", "")), 0);
    assert_int_equal(join(&b, 1, 2, 4, node(1, "node3", "h")), 0);
    assert_int_equal(
        rdzv_step(b.m, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1}, rdzv_timer(b.m)), 0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 1);
    assert_string_equal(rdzv_text(b.m),
                        "timed out after 0 s waiting for node[2,4] (2 of 4 nodes ready)");
    bed_free(&b);
}

static void machine_finishes_with_0_when_all_are_done(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 0);
    assert_string_equal(rdzv_text(b.m), "");
    bed_free(&b);
}

static void machine_stops_everywhere_at_the_first_failure_and_keeps_its_code(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 0);
    assert_int_equal(event(&b, RDZV_EXIT, 1, 2, 7, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 143, SIGTERM), 0); /* caused by STOP */
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 7);
    assert_string_equal(rdzv_text(b.m), "rank 4 on node2 failed: because (exit code 7)");
    bed_free(&b);
}

static void machine_restarts_within_the_budget_in_a_fresh_store(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 1);
    assert_int_equal(event(&b, RDZV_EXIT, 0, 1, 137, SIGKILL), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "note0 drop-1 plan0 plan1");
    DD_AUTO(plan) struct plan p = {0};
    assert_int_equal(rdzv_plan(b.m, 1, &p), 0);
    assert_int_equal(p.round, 1);
    assert_int_equal(p.restart_count, 1);
    /* messages of the previous round have no effect */
    assert_int_equal(
        rdzv_step(b.m, &(struct rdzv_event){.kind = RDZV_DONE, .id = 0, .round = 0}, 0), 0);
    assert_int_equal(
        rdzv_step(b.m, &(struct rdzv_event){.kind = RDZV_EXIT, .id = 0, .round = 0, .code = 9}, 0),
        0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 5, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop1 finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 5);
    bed_free(&b);
}

static void machine_waits_for_a_lost_node_that_it_needs(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 5);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0");
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "note0 drop-1");
    assert_int_equal(rdzv_timer(b.m), 30);
    assert_int_equal(join(&b, 1, 1, 2, node(3, "node2", "10.0.0.1")), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    (void)actions(&b);
    assert_int_equal(rdzv_step(b.m, &(struct rdzv_event){.kind = RDZV_TIME, .id = -1}, 30), 0);
    assert_string_equal(actions(&b), "finish0!");
    assert_int_equal(rdzv_code(b.m), 1);
    assert_non_null(strstr(rdzv_text(b.m), "lost node2: because; "));
    assert_non_null(strstr(rdzv_text(b.m), "only 1 node is left; the job needs at least 2"));
    bed_free(&b);
}

static void machine_ends_the_job_when_a_node_is_lost_and_no_restart_is_left(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 0);
    assert_int_equal(event(&b, RDZV_LOST, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop1");
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish1!");
    assert_int_equal(rdzv_code(b.m), 1);
    assert_string_equal(rdzv_text(b.m), "lost node1: because");
    bed_free(&b);
}

static void machine_passes_a_wish_to_stop_on_and_does_not_restart(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 5);
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 1, 0, 0, SIGINT), 0);
    struct rdzv_action a;
    assert_true(rdzv_next_action(b.m, &a));
    assert_int_equal(a.kind, RDZV_SEND_STOP);
    assert_int_equal(a.signal, SIGINT);
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 128 + SIGINT);
    bed_free(&b);
}

/* Without an answer the node would leave, and count as lost. */
static void machine_answers_the_wish_of_a_node_whose_workers_have_exited(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 5);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 1, 0, 0, SIGTERM), 0);
    assert_string_equal(actions(&b), "stop1");
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 0, 0, 0, SIGTERM), 0);
    assert_string_equal(actions(&b), "stop1 stop0");
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 128 + SIGTERM);
    bed_free(&b);
}

/* A terminal or a scheduler signals the daemon as well: an agent's request has precedence. */
static void machine_takes_the_daemons_own_wish_only_when_nobody_else_had_one(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 5);
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 1, 0, 0, SIGINT), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, -1, 0, 0, SIGTERM), 0);
    assert_string_equal(actions(&b), "");
    bed_free(&b);
    start_two(&b, 5);
    assert_int_equal(event(&b, RDZV_EXIT, 0, 1, 7, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, -1, 0, 0, SIGTERM), 0);
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0! finish1"); /* no further round */
    assert_int_equal(rdzv_code(b.m), 7);
    bed_free(&b);
}

static void machine_tells_latecomers_of_an_early_end(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 3, 0, "node[1-3]");
    assert_int_equal(join(&b, 0, 1, 3, node(1, "node2", "h")), 0);
    assert_int_equal(event(&b, RDZV_STOP_REQUEST, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0!");
    assert_int_equal(rdzv_code(b.m), 2);
    assert_int_equal(join(&b, 1, 0, 3, node(1, "node1", "")), 0);
    assert_string_equal(actions(&b), "finish1");
    assert_false(rdzv_all_finished(b.m));
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_int_equal(join(&b, 2, 2, 3, node(1, "node3", "h")), 0);
    assert_string_equal(actions(&b), "finish2");
    assert_true(rdzv_all_finished(b.m));
    assert_int_equal(rdzv_members(b.m), 1);
    bed_free(&b);
}

static void machine_starts_nobody_when_the_last_node_cannot(void **state)
{
    (void)state;
    struct bed b;
    bed_make(&b, 2, 3, "node[1-2]");
    assert_int_equal(join(&b, 0, 0, 2, node(1, "node1", "")), 0);
    assert_int_equal(rdzv_step(b.m,
                               &(struct rdzv_event){.kind = RDZV_JOIN,
                                                    .id = 1,
                                                    .index = 1,
                                                    .nnodes = 2,
                                                    .slots = 1,
                                                    .name = "node2",
                                                    .addr = "h",
                                                    .text = "no such program"},
                               0),
                     0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 2);
    assert_string_equal(rdzv_text(b.m), "no such program");
    bed_free(&b);
}

/* ---- elastic jobs ---- */

static int come(struct bed *b, int id, int index, const struct rdzv_cfg *cfg)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "node%d", index);
    return rdzv_step(b->m,
                     &(struct rdzv_event){.kind = RDZV_JOIN,
                                          .id = id,
                                          .index = index,
                                          .nnodes = cfg->max_nodes,
                                          .min_nodes = cfg->min_nodes,
                                          .slots = 1,
                                          .name = name,
                                          .addr = "h"},
                     b->now);
}

/* Return the nodes of the round in rank order, such as "2 0". */
static const char *ranks(struct bed *b)
{
    const struct rdzv_members *p = rdzv_planned(b->m);
    b->log[0] = '\0';
    for (int k = 0; k < p->n; k++)
        (void)sprintf(b->log + strlen(b->log), "%s%d", k > 0 ? " " : "", p->index[k]);
    return b->log;
}

static const struct rdzv_cfg two_to_four = {.min_nodes = 2, .max_nodes = 4, .expected = 4};
static const struct rdzv_cfg two_of_three = {.min_nodes = 2, .max_nodes = 2, .expected = 3};

static void machine_starts_with_enough_nodes_after_the_last_call(void **state)
{
    (void)state;
    struct bed b;
    bed_elastic(&b, two_to_four);
    assert_int_equal(rdzv_timer(b.m), 600);
    assert_int_equal(come(&b, 0, 0, &two_to_four), 0);
    b.now = 100;
    assert_int_equal(come(&b, 1, 3, &two_to_four), 0);
    assert_int_equal(rdzv_timer(b.m), 150);
    assert_string_equal(actions(&b), "");
    assert_int_equal(pass(&b, 150), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    assert_string_equal(ranks(&b), "0 3");
    bed_free(&b);
}

static void machine_does_not_wait_when_all_are_here(void **state)
{
    (void)state;
    struct bed b;
    bed_elastic(&b, two_to_four);
    for (int i = 0; i < 4; i++)
        assert_int_equal(come(&b, i, 3 - i, &two_to_four), 0);
    assert_string_equal(actions(&b), "plan3 plan2 plan1 plan0");
    bed_free(&b);
}

static void elastic_four(struct bed *b)
{
    bed_elastic(b, two_to_four);
    for (int i = 0; i < 4; i++)
        assert_int_equal(come(b, i, i, &two_to_four), 0);
    assert_string_equal(actions(b), "plan0 plan1 plan2 plan3");
    for (int i = 0; i < 4; i++)
        assert_int_equal(event(b, RDZV_STARTED, i, 0, 0, 0), 0);
    assert_string_equal(actions(b), "commit0 commit1 commit2 commit3");
}

static void machine_goes_on_without_a_lost_node_at_no_cost(void **state)
{
    (void)state;
    struct bed b;
    elastic_four(&b);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop2 stop3");
    for (int i = 0; i < 4; i++)
        if (i != 1)
            assert_int_equal(event(&b, RDZV_DONE, i, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "note0 drop-1 plan0 plan2 plan3");
    assert_string_equal(ranks(&b), "0 2 3");
    DD_AUTO(plan) struct plan p = {0};
    assert_int_equal(rdzv_plan(b.m, 2, &p), 0);
    assert_int_equal(p.round, 1);
    assert_int_equal(p.restart_count, 0);
    assert_int_equal(p.node_rank, 1);
    assert_int_equal(p.world_size, 3);
    /* a late node waits for the next round and fills the gap */
    assert_int_equal(come(&b, 1, 1, &two_to_four), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_LOST, 2, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 3, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop3 note0 drop-1 plan0 plan1 plan3");
    assert_string_equal(ranks(&b), "0 1 3");
    bed_free(&b);
}

static void machine_replaces_a_lost_node_by_a_spare(void **state)
{
    (void)state;
    struct bed b;
    bed_elastic(&b, two_of_three);
    for (int i = 0; i < 3; i++)
        assert_int_equal(come(&b, i, i, &two_of_three), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    assert_int_equal(event(&b, RDZV_LOST, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    /* 1 of 2 without the daemon's node is no majority: the other node may continue elsewhere */
    assert_string_equal(actions(&b), "stop1 note1 drop-1");
    bed_free(&b);
    bed_elastic(&b, two_of_three);
    for (int i = 0; i < 3; i++)
        assert_int_equal(come(&b, i, i, &two_of_three), 0);
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_LOST, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 note0 drop-1 plan0 plan2");
    assert_string_equal(ranks(&b), "0 2");
    bed_free(&b);
}

static void machine_goes_on_at_once_without_a_drained_node(void **state)
{
    (void)state;
    struct bed b;
    bed_elastic(&b, two_of_three);
    for (int i = 0; i < 3; i++)
        assert_int_equal(come(&b, i, i, &two_of_three), 0);
    (void)actions(&b);
    assert_false(rdzv_can_drain(b.m, 0)); /* 1 of 2 without the daemon's node is no majority */
    assert_int_equal(event(&b, RDZV_DRAIN, 0, 0, 0, 0), -EINVAL);
    assert_int_equal(event(&b, RDZV_DRAIN, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "exclude1 note0 stop0 stop1");
    assert_int_equal(event(&b, RDZV_EXIT, 1, 0, 143, SIGTERM), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "note0 drop-1 plan0 plan2");
    assert_string_equal(ranks(&b), "0 2");
    assert_int_equal(rdzv_restarts(b.m), 0);
    struct rdzv_view v;
    assert_true(rdzv_view(b.m, 1, &v) && v.unfit && !v.part);
    assert_false(rdzv_can_drain(b.m, 2));                   /* no spare is left */
    assert_int_equal(event(&b, RDZV_DRAIN, 1, 1, 0, 0), 0); /* has no effect */
    assert_string_equal(actions(&b), "");
    bed_free(&b);
}

static void machine_drains_a_spare_without_a_word_to_the_workers(void **state)
{
    (void)state;
    struct bed b;
    bed_elastic(&b, two_of_three);
    for (int i = 0; i < 3; i++)
        assert_int_equal(come(&b, i, i, &two_of_three), 0);
    (void)actions(&b);
    assert_int_equal(event(&b, RDZV_DRAIN, 2, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "exclude2 note0");
    assert_int_equal(rdzv_state(b.m), RDZV_RUNNING);
    bed_free(&b);
}

static void machine_grows_when_it_is_told_to(void **state)
{
    (void)state;
    struct bed b;
    struct rdzv_cfg cfg = two_to_four;
    cfg.grow = RDZV_GROW_NOW;
    bed_elastic(&b, cfg);
    assert_int_equal(come(&b, 0, 0, &cfg), 0);
    assert_int_equal(come(&b, 1, 1, &cfg), 0);
    assert_int_equal(pass(&b, 50), 0);
    assert_string_equal(actions(&b), "plan0 plan1");
    assert_int_equal(come(&b, 2, 2, &cfg), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 143, SIGTERM),
                     0); /* caused by STOP: this is no failure */
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "note0 drop-1 plan0 plan1 plan2");
    bed_free(&b);
}

static void machine_does_not_go_on_in_a_minority(void **state)
{
    (void)state;
    struct bed b;
    struct rdzv_cfg cfg = {.min_nodes = 1, .max_nodes = 4};
    bed_elastic(&b, cfg);
    for (int i = 0; i < 4; i++)
        assert_int_equal(come(&b, i, i, &cfg), 0);
    (void)actions(&b);
    for (int i = 1; i < 4; i++)
        assert_int_equal(event(&b, RDZV_LOST, i, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop2 stop3 note0 drop-1 probe0");
    assert_int_equal(pass(&b, 30), 0);
    assert_string_equal(actions(&b), "finish0!");
    assert_non_null(
        strstr(rdzv_text(b.m), "1 node is connected, without a majority of the last round"));
    bed_free(&b);
}

static void machine_of_a_later_daemon_needs_a_majority_of_the_round_before(void **state)
{
    (void)state;
    struct bed b;
    int four[] = {0, 1, 2, 3};
    int two[] = {2, 3};
    const struct rdzv_members old = {
        .epoch = 0, .round = 4, .restarts = 1, .tie = 0, .n = 4, .index = four};
    const struct rdzv_members newer = {
        .epoch = 9, .round = 5, .restarts = 1, .tie = 3, .n = 2, .index = two};
    struct rdzv_cfg cfg = {
        .min_nodes = 1, .max_nodes = 4, .epoch = rdzv_next_epoch(0, 1), .tie = 1};
    struct rdzv_event e = {.kind = RDZV_JOIN,
                           .nnodes = 4,
                           .min_nodes = 1,
                           .slots = 1,
                           .addr = "h",
                           .name = "n",
                           .committed = &old,
                           .planned = &old};
    bed_elastic(&b, cfg);
    for (e.id = e.index = 1; e.id < 3; e.index = ++e.id)
        assert_int_equal(rdzv_step(b.m, &e, 0), 0);
    assert_string_equal(actions(&b), "welcome1 welcome2"); /* exactly half, without node 0 */
    assert_int_equal(rdzv_step(b.m, &e, 0), 0);
    assert_string_equal(actions(&b), "welcome3 plan1 plan2 plan3");
    assert_int_equal(rdzv_round(b.m), 5);
    bed_free(&b);
    /* a round that one of them has started counts, too */
    bed_elastic(&b, cfg);
    for (e.id = e.index = 0; e.id < 3; e.index = ++e.id) {
        e.planned = e.id == 2 ? &newer : &old;
        assert_int_equal(rdzv_step(b.m, &e, 0), 0);
    }
    assert_int_equal(pass(&b, 20), 0);
    assert_string_equal(actions(&b),
                        "welcome0 welcome1 welcome2"); /* node 3 may have continued as well */
    bed_free(&b);
}

/* The agent of the daemon's node may join after the first spare nodes. */
static void machine_of_a_later_daemon_begins_nothing_before_its_own_node_has_joined(void **state)
{
    (void)state;
    struct bed b;
    int older[] = {2, 3};
    int last[] = {0, 1};
    const struct rdzv_members spares = {.epoch = 0, .round = 0, .tie = 2, .n = 2, .index = older};
    const struct rdzv_members own = {.epoch = 0, .round = 1, .tie = 0, .n = 2, .index = last};
    const struct rdzv_members *const known[] = {NULL, &spares};
    for (size_t i = 0; i < 2; i++) {
        struct rdzv_event e = {
            .kind = RDZV_JOIN, .nnodes = 4, .min_nodes = 1, .slots = 1, .addr = "h", .name = "n"};
        e.committed = e.planned = known[i];
        bed_elastic(&b,
                    (struct rdzv_cfg){
                        .min_nodes = 1, .max_nodes = 4, .epoch = rdzv_next_epoch(0, 1), .tie = 1});
        for (e.id = e.index = 2; e.id < 4; e.index = ++e.id)
            assert_int_equal(rdzv_step(b.m, &e, 0), 0);
        assert_int_equal(pass(&b, 20), 0);
        assert_null(strstr(actions(&b), "plan"));
        e.id = e.index = 1;
        e.committed = e.planned = &own;
        assert_int_equal(rdzv_step(b.m, &e, 20), 0);
        assert_null(strstr(actions(&b), "plan")); /* half of the last round, without node 0 */
        e.id = e.index = 0;
        assert_int_equal(rdzv_step(b.m, &e, 20), 0);
        assert_non_null(strstr(actions(&b), "plan1"));
        bed_free(&b);
    }
}

static void machine_ends_well_when_those_that_matter_have_succeeded(void **state)
{
    (void)state;
    struct bed b;
    start_two(&b, 3);
    assert_int_equal(event(&b, RDZV_SUCCESS_CRITERIA_MET, 1, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(event(&b, RDZV_SUCCESS_CRITERIA_MET, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "stop0 stop1");
    assert_int_equal(event(&b, RDZV_EXIT, 1, 2, 7, 0),
                     0); /* a server whose clients have exited: no longer a failure */
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_string_equal(actions(&b), "finish0! finish1");
    assert_int_equal(rdzv_code(b.m), 0);
    bed_free(&b);
    start_two(&b, 0); /* an earlier failure counts */
    assert_int_equal(event(&b, RDZV_SUCCESS_CRITERIA_MET, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_EXIT, 0, 1, 7, 0), 0);
    assert_int_equal(event(&b, RDZV_SUCCESS_CRITERIA_MET, 0, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
    assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
    assert_int_equal(rdzv_code(b.m), 7);
    bed_free(&b);
}

static void machine_leaves_an_unfit_node_out(void **state)
{
    (void)state;
    struct bed b;
    elastic_four(&b);
    assert_int_equal(event(&b, RDZV_EXIT, 3, 0, 1, 0), 0);
    (void)actions(&b);
    bed_free(&b);
    struct rdzv_cfg cfg = two_to_four;
    cfg.max_restarts = 1;
    bed_elastic(&b, cfg);
    for (int i = 0; i < 4; i++)
        assert_int_equal(come(&b, i, i, &cfg), 0);
    assert_int_equal(event(&b, RDZV_EXIT, 3, 0, 1, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(event(&b, RDZV_DONE, i, 0, 0, 0), 0);
    (void)actions(&b);
    assert_int_equal(
        rdzv_step(b.m, &(struct rdzv_event){.kind = RDZV_DONE, .id = 3, .unfit = "its GPU is gone"},
                  0),
        0);
    assert_string_equal(actions(&b), "exclude3 note0 note0 drop-1 plan0 plan1 plan2");
    assert_int_equal(event(&b, RDZV_LOST, 3, 0, 0, 0), 0);
    (void)actions(&b);
    assert_int_equal(come(&b, 3, 3, &cfg), 0);
    assert_string_equal(actions(&b), "note0"); /* it is excluded as before */
    bed_free(&b);
}

static void machine_does_not_wait_for_an_unfit_node(void **state)
{
    (void)state;
    struct bed b;
    bed_elastic(&b, two_to_four);
    for (int i = 0; i < 3; i++)
        assert_int_equal(come(&b, i, i, &two_to_four), 0);
    assert_string_equal(actions(&b), "");
    assert_int_equal(rdzv_step(b.m,
                               &(struct rdzv_event){.kind = RDZV_JOIN,
                                                    .id = 3,
                                                    .index = 3,
                                                    .nnodes = 4,
                                                    .min_nodes = 2,
                                                    .slots = 1,
                                                    .name = "n",
                                                    .addr = "h",
                                                    .unfit = "no GPU"},
                               0),
                     0);
    assert_string_equal(actions(&b), "exclude3 note0 plan0 plan1 plan2");
    bed_free(&b);
}

static void machine_counts_restarts_within_a_time(void **state)
{
    (void)state;
    struct bed b;
    struct rdzv_cfg cfg = {
        .min_nodes = 1, .max_nodes = 1, .max_restarts = 2, .restart_window_ns = 100};
    bed_elastic(&b, cfg);
    assert_int_equal(come(&b, 0, 0, &cfg), 0);
    static const struct {
        uint64_t now;
        const char *wanted;
    } rows[] = {{10, "note0 drop-1 plan0"},
                {20, "note0 drop-1 plan0"},
                {110, "note0 drop-1 plan0"},
                {121, "note0 drop-1 plan0"},
                {150, "finish0!"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        b.now = rows[i].now;
        assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 1, 0), 0);
        (void)actions(&b);
        assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
        assert_string_equal(actions(&b), rows[i].wanted);
    }
    bed_free(&b);
}

/* Restarts under the lost daemon count against the budget until the window has passed. */
static void machine_counts_restarts_of_the_daemon_before_it(void **state)
{
    (void)state;
    struct bed b;
    int both[] = {0, 1};
    static const uint64_t ages[] = {30, 60};
    const struct rdzv_members planned = {
        .epoch = 0, .round = 2, .restarts = 2, .tie = 0, .n = 2, .index = both};
    struct rdzv_cfg cfg = {.min_nodes = 1,
                           .max_nodes = 2,
                           .max_restarts = 2,
                           .restart_window_ns = 100,
                           .rejoin_ns = 5000,
                           .master_port = 31000,
                           .epoch = RDZV_EPOCH_STEP};
    static const struct {
        uint64_t failure;
        const char *wanted;
    } rows[] = {{1039, "finish0! finish1"}, {1041, "note0 drop-1 plan0 plan1"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        memset(&b, 0, sizeof(b));
        b.now = 1000;
        assert_int_equal(rdzv_new(&b.m, &cfg, b.now), 0);
        for (int id = 0; id < 2; id++)
            assert_int_equal(rdzv_step(b.m,
                                       &(struct rdzv_event){.kind = RDZV_JOIN,
                                                            .id = id,
                                                            .index = id,
                                                            .nnodes = 2,
                                                            .min_nodes = 1,
                                                            .slots = 1,
                                                            .name = "n",
                                                            .addr = "10.0.0.1",
                                                            .committed = &planned,
                                                            .planned = &planned,
                                                            .ages = ages,
                                                            .nages = 2},
                                       b.now),
                             0);
        assert_string_equal(actions(&b), "welcome0 welcome1 plan0 plan1");
        uint64_t told[4];
        assert_int_equal(rdzv_ages(b.m, b.now + 5, told, 4), 2);
        assert_int_equal(told[0], 35);
        assert_int_equal(told[1], 65);
        b.now = rows[i].failure;
        assert_int_equal(event(&b, RDZV_EXIT, 0, 0, 1, 0), 0);
        (void)actions(&b);
        assert_int_equal(event(&b, RDZV_DONE, 0, 0, 0, 0), 0);
        assert_int_equal(event(&b, RDZV_DONE, 1, 0, 0, 0), 0);
        assert_string_equal(actions(&b), rows[i].wanted);
        bed_free(&b);
    }
}

static void ages_are_written_and_read(void **state)
{
    (void)state;
    static const uint64_t ages[] = {1200, 60500};
    static const char *const bad[] = {"x",    "1 x", " 1", "1 ", "1  2", "-1", "99999999999999",
                                      "1 2\n"};
    uint64_t back[RESTART_AGES_MAX];
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(200);
    assert_int_equal(restart_ages_format(&out, ages, 2), 0);
    assert_string_equal(dd_buf_str(&out), "1200 60500");
    assert_int_equal(restart_ages_parse(back, "1200 60500", NULL), 2);
    assert_memory_equal(back, ages, sizeof(ages));
    assert_int_equal(restart_ages_parse(back, "", NULL), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(restart_ages_parse(back, bad[i], NULL), -EPROTO);
    char many[3 * RESTART_AGES_MAX];
    for (int i = 0; i < RESTART_AGES_MAX + 1; i++)
        (void)snprintf(many + 2 * i, 3, "%s7", i > 0 ? " " : "7");
    many[0] = '7';
    assert_int_equal(restart_ages_parse(back, many, NULL), -EPROTO);
}

static void members_are_written_and_read(void **state)
{
    (void)state;
    int index[] = {2, 0, 7};
    const struct rdzv_members m = {
        .epoch = 65537, .round = 3, .restarts = 1, .tie = 2, .n = 3, .index = index};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(200);
    DD_AUTO(rdzv_members) struct rdzv_members back = RDZV_MEMBERS_NONE;
    assert_int_equal(rdzv_members_format(&out, &m), 0);
    assert_string_equal(dd_buf_str(&out), "65537 3 1 2 n[2,0,7]");
    assert_int_equal(rdzv_members_parse(&back, "65537 3 1 2 n[2,0,7]", NULL), 0);
    assert_int_equal(back.epoch, 65537);
    assert_int_equal(back.tie, 2);
    assert_int_equal(back.n, 3);
    assert_memory_equal(back.index, index, sizeof(index));
    static const char *const bad[] = {
        "x",           "1 2 3 4",          "1 2 3 4 ", "1 2 3 4 m1", "1 2 3 4 n65536",
        "-1 2 3 4 n1", "1 2 3 99999999 n1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct rdzv_members none = RDZV_MEMBERS_NONE;
        assert_int_equal(rdzv_members_parse(&none, bad[i], NULL), -EPROTO);
    }
}

static void machine_survives_any_order_of_events(void **state)
{
    (void)state;
    unsigned seed = 1;
    for (int run = 0; run < 3000; run++) {
        struct bed b;
        bed_make(&b, 3, run % 3, "node[1-3]");
        int finished = 0;
        for (int step = 0; step < 60; step++) {
            seed = seed * 1103515245 + 12345;
            unsigned r = seed >> 16;
            int id = (int)(r % 4) - 1;
            const struct rdzv_event e = {.kind = r / 4 % RDZV_EVENT_MAX,
                                         .id = id,
                                         .round = (int)(r / 32 % 3),
                                         .index = (int)(r / 96 % 4) - 1,
                                         .nnodes = r % 17 == 0 ? 4 : 3,
                                         .slots = 2,
                                         .name = "n",
                                         .addr = "a",
                                         .local_rank = (int)(r % 3),
                                         .code = (int)(r % 200) + 1,
                                         .text = r / 4 % RDZV_EVENT_MAX == RDZV_JOIN ? NULL : "x"};
            (void)rdzv_step(b.m, &e, (uint64_t)step);
            struct rdzv_action a;
            int plans = 0;
            while (rdzv_next_action(b.m, &a)) {
                plans += a.kind == RDZV_SEND_PLAN;
                finished += a.kind == RDZV_SEND_FINISH && a.report;
                if (a.kind == RDZV_SEND_PLAN) {
                    DD_AUTO(plan) struct plan p = {0};
                    assert_int_equal(rdzv_plan(b.m, a.id, &p), 0);
                    assert_int_equal(p.first_rank, 2 * p.node_rank);
                }
            }
            assert_true(plans == 0 || plans == 3); /* a round starts on all nodes or on none */
        }
        assert_in_range(finished, 0, 1);
        assert_in_range(rdzv_members(b.m), 0, 3);
        bed_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_written_and_read_as_slurm_does),
        cmocka_unit_test(sizes_refuse_what_is_none),
        cmocka_unit_test(machine_welcomes_the_node_of_another_daemon),
        cmocka_unit_test(machine_plans_blocks_in_host_list_order_whatever_the_order_of_arrival),
        cmocka_unit_test(machine_places_nodes_without_a_rank_by_name),
        cmocka_unit_test(machine_refuses_who_does_not_fit),
        cmocka_unit_test(machine_lets_a_node_come_again_before_the_start),
        cmocka_unit_test(machine_names_the_missing_at_the_deadline),
        cmocka_unit_test(machine_finishes_with_0_when_all_are_done),
        cmocka_unit_test(machine_stops_everywhere_at_the_first_failure_and_keeps_its_code),
        cmocka_unit_test(machine_restarts_within_the_budget_in_a_fresh_store),
        cmocka_unit_test(machine_waits_for_a_lost_node_that_it_needs),
        cmocka_unit_test(machine_ends_the_job_when_a_node_is_lost_and_no_restart_is_left),
        cmocka_unit_test(machine_starts_with_enough_nodes_after_the_last_call),
        cmocka_unit_test(machine_does_not_wait_when_all_are_here),
        cmocka_unit_test(machine_goes_on_without_a_lost_node_at_no_cost),
        cmocka_unit_test(machine_replaces_a_lost_node_by_a_spare),
        cmocka_unit_test(machine_goes_on_at_once_without_a_drained_node),
        cmocka_unit_test(machine_drains_a_spare_without_a_word_to_the_workers),
        cmocka_unit_test(machine_grows_when_it_is_told_to),
        cmocka_unit_test(machine_does_not_go_on_in_a_minority),
        cmocka_unit_test(machine_of_a_later_daemon_needs_a_majority_of_the_round_before),
        cmocka_unit_test(machine_of_a_later_daemon_begins_nothing_before_its_own_node_has_joined),
        cmocka_unit_test(machine_ends_well_when_those_that_matter_have_succeeded),
        cmocka_unit_test(machine_leaves_an_unfit_node_out),
        cmocka_unit_test(machine_does_not_wait_for_an_unfit_node),
        cmocka_unit_test(machine_counts_restarts_within_a_time),
        cmocka_unit_test(machine_counts_restarts_of_the_daemon_before_it),
        cmocka_unit_test(ages_are_written_and_read),
        cmocka_unit_test(members_are_written_and_read),
        cmocka_unit_test(machine_passes_a_wish_to_stop_on_and_does_not_restart),
        cmocka_unit_test(machine_answers_the_wish_of_a_node_whose_workers_have_exited),
        cmocka_unit_test(machine_takes_the_daemons_own_wish_only_when_nobody_else_had_one),
        cmocka_unit_test(machine_tells_latecomers_of_an_early_end),
        cmocka_unit_test(machine_starts_nobody_when_the_last_node_cannot),
        cmocka_unit_test(machine_survives_any_order_of_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
