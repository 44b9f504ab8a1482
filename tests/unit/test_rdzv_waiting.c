/* rdzv/waiting: the conditions that a job waits for, as text. */
#include "base/num.h"
#include "rdzv/waiting.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const struct rdzv_wait nodes = {.what = WAITING_FOR_NODES,
                                       .ready = 2,
                                       .wanted = 4,
                                       .workers = 8,
                                       .attempt = 1,
                                       .attempts = 3,
                                       .names = "node3, node4",
                                       .waited_s = 30,
                                       .limit_s = 300,
                                       .starts_s = -1};

static const char *line(const struct rdzv_wait *w, size_t columns)
{
    static char out[1024];
    waiting_line(out, sizeof(out), columns, w);
    return out;
}

static void durations_have_at_most_two_units(void **state)
{
    static const struct {
        uint64_t s;
        const char *text;
    } rows[] = {{0, "0 s"},          {59, "59 s"},          {60, "1 min"},
                {270, "4 min 30 s"}, {3599, "59 min 59 s"}, {3600, "1 h"},
                {3660, "1 h 1 min"}, {90000, "25 h"}};
    char out[DD_DURATION_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        dd_num_duration_text(out, rows[i].s);
        assert_string_equal(out, rows[i].text);
    }
    dd_num_duration_text(out, UINT64_MAX);
    assert_true(strlen(out) < sizeof(out));
}

static void a_notice_names_its_limit(void **state)
{
    char out[300];
    struct rdzv_wait w = nodes;
    (void)state;
    waiting_notice(out, sizeof(out), &w, "node[3-4]");
    assert_string_equal(out, "waiting for 2 of 4 nodes: node[3-4]; gives up in 4 min 30 s");
    w.starts_s = 20;
    waiting_notice(out, sizeof(out), &w, "");
    assert_string_equal(out, "waiting for 2 of 4 nodes; starts without them in 20 s");
    w = nodes;
    w.waited_s = 400; /* the daemon's timer was late */
    waiting_notice(out, sizeof(out), &w, NULL);
    assert_string_equal(out, "waiting for 2 of 4 nodes; gives up in 0 s");
}

static void a_line_leaves_out_its_last_parts_where_it_is_too_long(void **state)
{
    (void)state;
    const char *all = "ddrun: 2 of 4 nodes joined (30 s of 5 min); waiting for node3, node4; "
                      "attempt 1 of 3; 8 workers";
    assert_string_equal(line(&nodes, 200), all);
    for (size_t columns = 1; columns < 200; columns++) {
        const char *cut = line(&nodes, columns);
        assert_true(strlen(cut) < columns);
        assert_int_equal(strncmp(cut, all, strlen(cut) < 42 ? strlen(cut) : 42), 0);
    }
    assert_string_equal(line(&nodes, 90), "ddrun: 2 of 4 nodes joined (30 s of 5 min); waiting for "
                                          "node3, node4; attempt 1 of 3");
    assert_string_equal(line(&nodes, 65),
                        "ddrun: 2 of 4 nodes joined (30 s of 5 min); attempt 1 of 3");
    assert_string_equal(line(&nodes, 8), "ddrun: ");
}

static void each_reason_to_wait_has_its_line(void **state)
{
    struct rdzv_wait w = nodes;
    (void)state;
    w.starts_s = 10;
    w.attempts = 1;
    w.names[0] = '\0';
    w.workers = 1;
    assert_string_equal(line(&w, 200),
                        "ddrun: 2 of 4 nodes joined (30 s; starts in 10 s); 1 worker");
    w = nodes;
    w.what = WAITING_FOR_STOP;
    w.attempt = 2;
    assert_string_equal(line(&w, 200), "ddrun: restarting, 2 of 4 nodes stopped (30 s of 5 min); "
                                       "waiting for node3, node4; attempt 2 of 3; 8 workers");
    w = (struct rdzv_wait){.waited_s = 3, .limit_s = 60, .starts_s = -1};
    assert_string_equal(line(&w, 200), "ddrun: looking for the job's daemon (3 s of 1 min)");
}

static void at_most_three_names_are_listed(void **state)
{
    char list[WAITING_NAMES] = "";
    char long_name[300];
    (void)state;
    for (int i = 0; i < 5; i++)
        waiting_add_name(list, i, "n");
    waiting_end_names(list, 5);
    assert_string_equal(list, "n, n, n and 2 more");
    list[0] = '\0';
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    for (int i = 0; i < 4; i++)
        waiting_add_name(list, i, long_name);
    waiting_end_names(list, 4);
    assert_non_null(strstr(list, " and 1 more"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_have_at_most_two_units),
        cmocka_unit_test(a_notice_names_its_limit),
        cmocka_unit_test(a_line_leaves_out_its_last_parts_where_it_is_too_long),
        cmocka_unit_test(each_reason_to_wait_has_its_line),
        cmocka_unit_test(at_most_three_names_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
