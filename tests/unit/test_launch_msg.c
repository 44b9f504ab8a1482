/* launch: messages between a started node and its parent, and the shares of the start tree. */
#include "launch/launch_msg.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { NODES = 9 };

static void encode(struct dd_buf *out, const struct launch_msg *w)
{
    assert_int_equal(launch_msg_encode(out, w), 0);
}

static void words_arrive_as_they_were_said(void **state)
{
    (void)state;
    static const struct launch_msg rows[] = {
        {.type = LAUNCH_SIGNAL, .node = 8, .value = 15},
        {.type = LAUNCH_CREDIT, .node = 1, .value = UINT32_MAX},
        {.type = LAUNCH_FAILED, .node = 3, .value = 255},
        {.type = LAUNCH_CANCEL, .node = 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(4096);
        DD_AUTO(launch_msg) struct launch_msg w = {0};
        encode(&bytes, &rows[i]);
        assert_int_equal(launch_msg_decode(&w, bytes.data, bytes.len, NODES), 0);
        assert_true(w.type == rows[i].type && w.node == rows[i].node && w.value == rows[i].value);
    }
}

static void a_task_arrives_whole_or_not_at_all(void **state)
{
    (void)state;
    int nodes[] = {2, 8, 5};
    const struct launch_msg in = {.type = LAUNCH_TASK,
                                  .task = {.output = true,
                                           .by_relay = true,
                                           .fanout = 32,
                                           .grace_ms = 5000,
                                           .starter = "ssh",
                                           .words = "ssh -p 2222",
                                           .nodes = nodes,
                                           .n = 3}};
    DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(4096);
    DD_AUTO(launch_msg) struct launch_msg w = {0};
    encode(&bytes, &in);
    assert_int_equal(launch_msg_decode(&w, bytes.data, bytes.len, NODES), 0);
    assert_true(w.task.output && w.task.by_relay);
    assert_int_equal(w.task.fanout, 32);
    assert_int_equal(w.task.grace_ms, 5000);
    assert_string_equal(w.task.starter, "ssh");
    assert_null(w.task.program);
    assert_string_equal(w.task.words, "ssh -p 2222");
    assert_int_equal(w.task.n, 3);
    assert_memory_equal(w.task.nodes, nodes, sizeof(nodes));
    for (size_t n = 0; n < bytes.len; n++) {
        struct launch_msg none = {0};
        assert_int_equal(launch_msg_decode(&none, bytes.data, n, NODES), -EPROTO);
    }
    struct launch_msg none = {0};
    assert_int_equal(launch_msg_decode(&none, bytes.data, bytes.len, 8),
                     -EPROTO); /* 8 nodes have no node 8 */
    assert_int_equal(dd_buf_append(&bytes, "", 1), 0);
    assert_int_equal(launch_msg_decode(&none, bytes.data, bytes.len, NODES), -EPROTO);
}

static void what_is_not_a_word_is_refused(void **state)
{
    (void)state;
    static const struct launch_msg rows[] = {
        {.type = (enum launch_msg_type)0},
        {.type = (enum launch_msg_type)(LAUNCH_CANCEL + 1)},
        {.type = LAUNCH_CONNECTED, .node = NODES},
        {.type = LAUNCH_CONNECTED, .node = -1},
        {.type = LAUNCH_CREDIT, .node = LAUNCH_STREAMS},
        {.type = LAUNCH_TASK, .task = {.fanout = LAUNCH_FANOUT_MAX + 1}}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf bytes = DD_BUF_INIT(4096);
        struct launch_msg w = {0};
        encode(&bytes, &rows[i]);
        assert_int_equal(launch_msg_decode(&w, bytes.data, bytes.len, NODES), -EPROTO);
    }
}

/* Each node is in one share, there are at most `fanout` shares, and their sizes differ by at most
 * one. */
static void shares_are_fair(void **state)
{
    (void)state;
    static const int fanouts[] = {0, 1, 2, 3, 32, 1024};
    for (size_t f = 0; f < sizeof(fanouts) / sizeof(fanouts[0]); f++)
        for (int n = 0; n <= 200; n++) {
            int at = 0;
            int size;
            int next = 0;
            int k = 0;
            int most = 0;
            int least = n;
            for (; (size = launch_subtree(n, fanouts[f], k, &at)) > 0; k++) {
                assert_int_equal(at, next);
                next = at + size;
                most = size > most ? size : most;
                least = size < least ? size : least;
            }
            assert_int_equal(next, n);
            assert_true(fanouts[f] == 0 || k <= fanouts[f]);
            assert_true(n == 0 || most - least <= 1);
            assert_true(fanouts[f] != 0 || most <= 1);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_arrive_as_they_were_said),
        cmocka_unit_test(a_task_arrives_whole_or_not_at_all),
        cmocka_unit_test(what_is_not_a_word_is_refused),
        cmocka_unit_test(shares_are_fair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
