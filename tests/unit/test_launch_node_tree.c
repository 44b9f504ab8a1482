/* launch: the tree of nodes that start each other. */
#include "launch/node_tree.h"

#include "base/sig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 12, SECOND = 1, OUTER = 2, LAST = 3, SLOW_TICKS = 30, SENT_MAX = 64 };

struct sent {
    int to;
    enum launch_msg_type type;
    int node;
    uint32_t value;
};

/* A tree whose starters, links and parent only record its calls. */
struct bed {
    struct node_tree *tree;
    struct dd_log log;
    struct hostlist *nodes;
    bool running[NODES], refuses[NODES]; /* refuses: on_start() fails */
    int started, killed[NODES];
    struct sent sent[SENT_MAX];
    int nsent;
    struct sent reported[SENT_MAX];
    int nreported;
    int exit_code[NODES]; /* -1: still running */
    int failed, none_left, connected;
};

static int on_start(void *arg, int index)
{
    struct bed *b = arg;
    if (b->refuses[index])
        return -12;
    assert_false(b->running[index]); /* a node has one starter */
    b->running[index] = true;
    b->started++;
    return 0;
}

static bool is_running(void *arg, int index)
{
    const struct bed *b = arg;
    return b->running[index];
}

static void on_kill(void *arg, int index, int sig)
{
    struct bed *b = arg;
    if (b->running[index])
        b->killed[index] = sig;
}

static void on_send(void *arg, int to, enum launch_msg_type type, int node, uint32_t value)
{
    struct bed *b = arg;
    assert_true(b->nsent < SENT_MAX);
    b->sent[b->nsent++] = (struct sent){to, type, node, value};
}

static void on_report(void *arg, enum launch_msg_type type, int node, int value)
{
    struct bed *b = arg;
    assert_true(b->nreported < SENT_MAX);
    b->reported[b->nreported++] = (struct sent){-1, type, node, (uint32_t)value};
}

static void on_exited(void *arg, int index, int code)
{
    struct bed *b = arg;
    b->exit_code[index] = code;
}

static void on_failed(void *arg)
{
    struct bed *b = arg;
    b->failed++;
}

static void on_none_left(void *arg)
{
    struct bed *b = arg;
    b->none_left++;
}

static void on_connected(void *arg)
{
    struct bed *b = arg;
    b->connected++;
}

static void on_changed(void *arg)
{
    (void)arg;
}

static void bed_new(struct bed *b, int fanout, bool relay)
{
    memset(b, 0, sizeof(*b));
    memset(b->exit_code, -1, sizeof(b->exit_code));
    b->log.fd = -1;
    assert_int_equal(hostlist_parse(&b->nodes, "node[0-11]", NULL), 0);
    const struct node_tree_cfg cfg = {.nodes = b->nodes,
                                      .fanout = fanout,
                                      .min_nodes = NODES,
                                      .relay = relay,
                                      .starter = "ssh",
                                      .log = &b->log,
                                      .port = {.start = on_start,
                                               .is_running = is_running,
                                               .kill = on_kill,
                                               .send = on_send,
                                               .report = on_report,
                                               .exited = on_exited,
                                               .failed = on_failed,
                                               .none_left = on_none_left,
                                               .connected = on_connected,
                                               .changed = on_changed,
                                               .arg = b}};
    assert_int_equal(node_tree_new(&b->tree, &cfg), 0);
}

static void bed_done(struct bed *b)
{
    node_tree_free(b->tree);
    hostlist_free(b->nodes);
}

static void start(struct bed *b, int first, int last)
{
    int nodes[NODES];
    struct dd_err err = {0};
    for (int i = first; i <= last; i++)
        nodes[i - first] = i;
    assert_int_equal(node_tree_start(b->tree, nodes, last - first + 1, &err), 0);
}

static int take_task(struct bed *b, int index)
{
    const int *nodes;
    int n = -1;
    return node_tree_take_task(b->tree, index, &nodes, &n) ? n : -1;
}

/* Let the node fetch its task, then its payload. */
static void connect_node(struct bed *b, int index)
{
    assert_true(take_task(b, index) >= 0);
    assert_true(node_tree_connect(b->tree, index));
}

static void receive(struct bed *b, int from, enum launch_msg_type type, int node, uint32_t value)
{
    node_tree_receive(b->tree, from,
                      &(struct launch_msg){.type = type, .node = node, .value = value});
}

static int count_sent(const struct bed *b, int to, enum launch_msg_type type, int node)
{
    int n = 0;
    for (int i = 0; i < b->nsent; i++)
        n += b->sent[i].to == to && b->sent[i].type == type && b->sent[i].node == node;
    return n;
}

/* Let half a minute pass without a connection: late nodes are then distributed anew. */
static void wait_half_a_minute(struct bed *b)
{
    for (int i = 0; i < SLOW_TICKS; i++)
        assert_true(node_tree_tick(b->tree));
}

/* This node runs its agent and has started SECOND, which is connected and starts OUTER and LAST. */
static void bed_new_with_subtree(struct bed *b)
{
    bed_new(b, 1, false);
    node_tree_agent_started(b->tree, 0);
    start(b, SECOND, LAST);
    assert_int_equal(b->started, 1);
    connect_node(b, SECOND);
    assert_int_equal(node_tree_parent(b->tree, OUTER), SECOND);
    assert_int_equal(node_tree_parent(b->tree, LAST), SECOND);
}

/* CONNECTED from the parent and CANCEL to the parent cross: the node is not started twice. */
static void a_node_that_connects_while_it_is_taken_over_stays_with_its_parent(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    wait_half_a_minute(&b);
    assert_int_equal(count_sent(&b, SECOND, LAUNCH_CANCEL, OUTER), 1);
    assert_true(b.running[OUTER]);
    assert_int_equal(node_tree_parent(b.tree, OUTER), OUTER);
    assert_int_equal(node_tree_parent(b.tree, LAST), OUTER); /* the fan-out is 1 */
    receive(&b, SECOND, LAUNCH_CONNECTED, OUTER, 0);
    assert_int_equal(node_tree_parent(b.tree, OUTER), SECOND);
    assert_true(node_tree_is_connected(b.tree, OUTER));
    assert_int_equal(b.killed[OUTER], SIGKILL);
    assert_int_equal(count_sent(&b, SECOND, LAUNCH_SIGNAL, OUTER), 0);
    receive(&b, SECOND, LAUNCH_EXITED, OUTER, 7);
    assert_int_equal(b.exit_code[OUTER], 7);
    bed_done(&b);
}

static void a_node_that_is_taken_over_and_connects_here_is_ended_at_its_former_parent(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    wait_half_a_minute(&b);
    connect_node(&b, OUTER);
    receive(&b, SECOND, LAUNCH_CONNECTED, OUTER, 0);
    assert_int_equal(count_sent(&b, SECOND, LAUNCH_SIGNAL, OUTER), 1);
    assert_int_equal(b.sent[b.nsent - 1].value, SIGTERM | DD_SIGNAL_AT_ONCE);
    receive(&b, SECOND, LAUNCH_EXITED, OUTER, 7);
    assert_true(node_tree_is_connected(b.tree, OUTER));
    assert_int_equal(node_tree_parent(b.tree, OUTER), OUTER);
    assert_int_equal(b.killed[OUTER], 0);
    bed_done(&b);
}

/* The node has fetched its task, but is not connected: CANCEL could not reach it. */
static void the_subtree_of_a_node_that_is_connecting_is_not_taken(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b, 1, false);
    start(&b, SECOND, LAST);
    assert_int_equal(take_task(&b, SECOND), 2);
    wait_half_a_minute(&b);
    assert_int_equal(b.started, 1);
    assert_int_equal(node_tree_parent(b.tree, OUTER), SECOND);
    assert_int_equal(take_task(&b, SECOND), 2);
    bed_done(&b);
}

/* All late nodes, including the subtree of a node that has not fetched its task, are distributed
 * once. */
static void late_nodes_are_dealt_out_over_the_fan_out(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b, 2, false);
    start(&b, SECOND, NODES - 1); /* 1 starts 2 to 5, 6 starts 7 to 11 */
    assert_int_equal(b.started, 2);
    connect_node(&b, SECOND);
    wait_half_a_minute(&b);
    assert_int_equal(b.started, 4);
    assert_int_equal(take_task(&b, 6), 0); /* nothing is left of its subtree */
    assert_int_equal(take_task(&b, OUTER) + take_task(&b, 7), 9 - 2);
    bed_done(&b);
}

/* A new parent may be as slow as the old one: each time this node starts at least one more node
 * itself. */
static void what_a_new_parent_does_not_start_is_taken_again(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    wait_half_a_minute(&b);
    assert_int_equal(node_tree_parent(b.tree, LAST), OUTER);
    wait_half_a_minute(&b);
    assert_int_equal(node_tree_parent(b.tree, LAST), LAST);
    wait_half_a_minute(&b);
    assert_int_equal(b.started, 3); /* SECOND, OUTER, LAST */
    bed_done(&b);
}

/* The new parent gets CANCEL, in case it has fetched its task already, and the task that it fetches
 * later lacks the node. */
static void a_node_that_connects_by_its_old_parent_is_not_started_by_the_new_one(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    wait_half_a_minute(&b);
    receive(&b, SECOND, LAUNCH_CONNECTED, LAST, 0);
    assert_int_equal(node_tree_parent(b.tree, LAST), SECOND);
    assert_true(node_tree_is_connected(b.tree, LAST));
    assert_int_equal(count_sent(&b, OUTER, LAUNCH_CANCEL, LAST), 1);
    assert_int_equal(take_task(&b, OUTER), 0);
    bed_done(&b);
}

/* Lateness is counted in ticks: a period in which this process was stopped counts as one. */
static void no_node_is_late_before_half_a_minute_of_looking(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    for (int i = 1; i < SLOW_TICKS; i++)
        assert_true(node_tree_tick(b.tree));
    assert_int_equal(node_tree_parent(b.tree, OUTER), SECOND);
    assert_true(node_tree_tick(b.tree));
    assert_int_equal(node_tree_parent(b.tree, OUTER), OUTER);
    connect_node(&b, OUTER);
    receive(&b, OUTER, LAUNCH_CONNECTED, LAST, 0);
    assert_false(node_tree_tick(b.tree));
    bed_done(&b);
}

/* The node field of CREDIT is a stream, which may exceed the number of nodes. */
static void messages_that_only_go_down_touch_no_node(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    const int before = b.nsent;
    receive(&b, SECOND, LAUNCH_CREDIT, 1 << 20, 5);
    receive(&b, SECOND, LAUNCH_CANCEL, SECOND, 0);
    receive(&b, SECOND, LAUNCH_TASK, 1 << 20, 0);
    assert_true(node_tree_is_connected(b.tree, SECOND));
    assert_int_equal(b.nsent, before);
    bed_done(&b);
}

static void a_node_that_a_relay_cannot_start_is_started_from_here(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    receive(&b, SECOND, LAUNCH_FAILED, OUTER, 255);
    assert_int_equal(node_tree_parent(b.tree, OUTER), OUTER);
    assert_true(b.running[OUTER]);
    assert_int_equal(b.failed, 0);
    b.running[OUTER] = false;
    node_tree_starter_exited(b.tree, OUTER, 255, false); /* it cannot be started here either */
    assert_int_equal(b.failed, 1);
    bed_done(&b);
}

static void a_relay_reports_what_it_cannot_start_and_leaves_it_to_its_parent(void **state)
{
    (void)state;
    struct bed b;
    bed_new(&b, 1, true);
    start(&b, SECOND, LAST);
    b.running[SECOND] = false;
    b.refuses[OUTER] = true;
    node_tree_starter_exited(b.tree, SECOND, 255, false);
    assert_int_equal(b.failed, 0);
    assert_true(b.reported[0].type == LAUNCH_FAILED && b.reported[0].node == SECOND &&
                b.reported[0].value == 255);
    assert_true(b.reported[1].type == LAUNCH_FAILED && b.reported[1].node == OUTER);
    assert_false(node_tree_connect(b.tree, SECOND)); /* now the parent starts it */
    assert_true(b.running[LAST]);                    /* in the subtrees of both */
    bed_done(&b);
}

static void a_relay_that_is_gone_takes_its_connected_subtree_along(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    receive(&b, SECOND, LAUNCH_CONNECTED, OUTER, 0);
    b.running[SECOND] = false;
    node_tree_starter_exited(b.tree, SECOND, 137, false);
    assert_int_equal(b.exit_code[SECOND], 137);
    assert_int_equal(b.exit_code[OUTER], 137);
    assert_true(b.running[LAST]); /* not connected: started from here */
    assert_int_equal(b.none_left, 0);
    bed_done(&b);
}

static void nothing_is_started_once_the_job_is_ending(void **state)
{
    (void)state;
    struct bed b;
    bed_new_with_subtree(&b);
    node_tree_end(b.tree);
    node_tree_cancel_starting(b.tree);
    assert_int_equal(count_sent(&b, SECOND, LAUNCH_CANCEL, OUTER), 1);
    assert_int_equal(count_sent(&b, SECOND, LAUNCH_CANCEL, LAST), 1);
    assert_false(node_tree_tick(b.tree));
    node_tree_agent_exited(b.tree, 0, 0);
    assert_false(node_tree_all_ended(b.tree));
    receive(&b, SECOND, LAUNCH_EXITED, SECOND, 0);
    assert_true(node_tree_all_ended(b.tree));
    assert_int_equal(b.none_left, 1);
    assert_int_equal(b.started, 1);
    bed_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_connects_while_it_is_taken_over_stays_with_its_parent),
        cmocka_unit_test(a_node_that_is_taken_over_and_connects_here_is_ended_at_its_former_parent),
        cmocka_unit_test(the_subtree_of_a_node_that_is_connecting_is_not_taken),
        cmocka_unit_test(late_nodes_are_dealt_out_over_the_fan_out),
        cmocka_unit_test(what_a_new_parent_does_not_start_is_taken_again),
        cmocka_unit_test(a_node_that_connects_by_its_old_parent_is_not_started_by_the_new_one),
        cmocka_unit_test(no_node_is_late_before_half_a_minute_of_looking),
        cmocka_unit_test(messages_that_only_go_down_touch_no_node),
        cmocka_unit_test(a_node_that_a_relay_cannot_start_is_started_from_here),
        cmocka_unit_test(a_relay_reports_what_it_cannot_start_and_leaves_it_to_its_parent),
        cmocka_unit_test(a_relay_that_is_gone_takes_its_connected_subtree_along),
        cmocka_unit_test(nothing_is_started_once_the_job_is_ending),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
