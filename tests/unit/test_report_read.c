/* report: the JSON report is printed again as the terminal has shown it; other files are refused.
 */
#include "report/report.h"
#include "report/report_read.h"
#include "report/stacks.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)
#define START (100 * S)

static struct report *fresh(int max_restarts)
{
    struct report *r;
    const struct report_cfg cfg = {.job_id = "slurm-7.0",
                                   .nnodes = 2,
                                   .max_restarts = max_restarts,
                                   .start_ns = START,
                                   .start_real_ns = UINT64_C(1795264803) * S + 999999999};
    assert_int_equal(report_new(&r, &cfg), 0);
    return r;
}

/* Print the report as the terminal shows it, and again from its JSON. */
static void reads_back(struct report *r, const char *heading, bool brief)
{
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(REPORT_JSON_MAX);
    DD_AUTO(buf) struct dd_buf shown = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(1 << 20);
    struct dd_err err = {0};
    assert_int_equal(dd_buf_puts(&shown, heading), 0);
    assert_int_equal(report_text(r, &shown), 0);
    assert_int_equal(report_json(r, brief, &json), 0);
    assert_int_equal(report_read((char *)json.data, json.len, &again, &err), 0);
    assert_string_equal(dd_buf_str(&again), dd_buf_str(&shown));
    report_free(r);
}

static struct report_exit failing(int rank, uint64_t at, const char *tail)
{
    return (struct report_exit){.rank = rank,
                                .local_rank = rank % 2,
                                .pid = 4000 + rank,
                                .code = 1,
                                .at_ns = at,
                                .node = rank < 2 ? "node1" : "node2",
                                .tail = tail,
                                .log = "logs/x/attempt_0/1/stderr.log"};
}

static void stacks_and_collectives_are_printed_again(void **state)
{
    static const struct stack reduce = {.kind = STACK_PYTHON,
                                        .frames = "all_reduce\t/x-packages/torch/d.py\t2811\n"
                                                  "main\t/u/train.py\t81\n"};
    static const struct stack reading = {.kind = STACK_PYTHON,
                                         .frames = "read\t/u/data.py\t40\n",
                                         .state = "uninterruptible, state D"};
    static const struct flight_record in = {
        .waiting = true, .number = 2, .group = "default_pg", .name = "all_reduce"};
    static const struct flight_record behind = {
        .number = 1, .group = "default_pg", .name = "all_reduce"};
    (void)state;
    struct report *r = fresh(0);
    struct stacks s = {0};
    report_round(r, 0, 4, START + S);
    struct report_exit e = failing(3, START + 4 * S, NULL);
    e.error = "hung: no output for 5 s";
    assert_int_equal(report_exit_add(r, &e, true), 0);
    assert_int_equal(stacks_add_node(&s, "node1", 0, 2), 0);
    assert_int_equal(stacks_add_node(&s, "node2", 2, 2), 0);
    assert_int_equal(stacks_add(&s, &reduce, 0, 2), 0);
    assert_int_equal(stacks_add(&s, &reading, 3, 3), 0);
    assert_int_equal(flight_groups_add(&s.collectives, &in, 0, 2), 0);
    assert_int_equal(flight_groups_add(&s.collectives, &behind, 3, 3), 0);
    stacks_sort(&s);
    report_stacks_take(r, &s);
    report_finish(r, "", 1, START + 5 * S);
    reads_back(r,
               "job slurm-7.0: 2 nodes, 4 workers, started 2026-11-21T12:40:03Z, failed after "
               "5.000 s\nerror: ",
               false);
}

static void report_of_a_failure_is_printed_again(void **state)
{
    (void)state;
    struct report *r = fresh(3);
    report_round(r, 0, 4, START + S);
    struct report_exit e = failing(1, START + 2 * S + 345678901,
                                   "OSError: [Errno 28] No space left on device");
    assert_int_equal(report_exit_add(r, &e, true), 0);
    report_round(r, 1, 4, START + 3 * S + 123456789);
    e = failing(0, START + 4 * S, "  a\n\n  RuntimeError: Connection closed by peer\n");
    assert_int_equal(report_exit_add(r, &e, true), 0);
    e = failing(3, START + 5 * S + 111222333, NULL);
    e.error = "ValueError: \xc3\xb6 boom\nand \033[31mmore\033[0m";
    e.trace = "  File \"a.py\", line 8, in main\n    raise";
    assert_int_equal(report_exit_add(r, &e, true), 0);
    e = failing(2, START + 6 * S, NULL);
    e.signal = SIGKILL;
    e.code = 137;
    e.oom = true;
    assert_int_equal(report_exit_add(r, &e, true), 0);
    const struct report_ends ends = {.left = 1,
                                     .killed = 2,
                                     .stopped = 3,
                                     .first_node = "n2",
                                     .first_rank = 3,
                                     .first_ns = 2 * S};
    assert_int_equal(report_ends_add(r, &ends), 0);
    assert_int_equal(report_charge_set(r, "node1", 1, "OSError: [Errno 28] No space left"), 0);
    assert_int_equal(report_charge_set(r, "node2\033[31m", 1, "ValueError: boom"), 0);
    for (int i = 0; i < 6; i++) {
        char text[40];
        (void)snprintf(text, sizeof(text), "GPU %d is too \033[31mhot", i);
        assert_int_equal(report_warning_add(r, "node2", text), 0);
    }
    report_finish(r, "", 1, START + 7 * S + 5000000);
    reads_back(
        r,
        "job slurm-7.0: 2 nodes, 4 workers, started 2026-11-21T12:40:03Z, failed after 7.005 s, 1 restart\n"
        "round 0 ended after 2.123 s: rank 1 on node1 failed: OSError: [Errno 28] No space left on device "
        "(exit code 1)\nerror: ",
        false);
}

static void report_of_many_failures_is_printed_again(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    report_round(r, 0, 1000, START + S);
    for (int i = 0; i < 1000; i++) {
        struct report_exit e = failing(i, START + (uint64_t)(2000 - i) * 1000000, "KeyError: 'x'");
        assert_int_equal(report_exit_add(r, &e, true), 0);
    }
    report_finish(r, "", 1, START + 3 * S);
    reads_back(
        r,
        "job slurm-7.0: 2 nodes, 1000 workers, started 2026-11-21T12:40:03Z, failed after 3.000 s\nerror: ",
        false);
}

static void success_and_other_ends_are_printed_again(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    report_round(r, 0, 1, START + S);
    report_finish(r, "", 0, START + 3 * S);
    reads_back(
        r,
        "job slurm-7.0: 2 nodes, 1 worker, started 2026-11-21T12:40:03Z, succeeded after 3.000 s\n",
        false);
}

static void report_of_an_earlier_version_is_printed(void **state)
{
    (void)state;
    static const char old[] =
        "{\"version\": 1, \"job\": \"j\", \"ok\": false, \"code\": 1, \"cause\": \"%s\", \"what_to_do\": null, \"nodes\": 1, "
        "\"world_size\": 2, \"restarts\": 0, \"start\": \"2026-11-21T12:40:03Z\", \"ended\": 3.5, \"rounds\": [{\"round\": 0, "
        "\"started\": 0.5, \"ended\": 3.5, \"cause\": null}], \"failures\": [{\"rank\": 1, \"local_rank\": 1, \"node\": \"n\", "
        "\"pid\": 7, \"code\": 1, \"signal\": null, \"out_of_memory\": false, \"time\": \"x\", \"at\": 1.5, \"exception\": null, "
        "\"message\": \"KeyError: 1\", \"traceback\": [], \"stderr\": [], \"log\": null}], \"failed\": 1, \"others\": "
        "{\"ended_with_0\": 0, \"stopped\": 1, \"killed\": 0, \"failed_later\": 0}}";
    static const struct {
        const char *cause, *printed;
    } rows[] = {
        {"rank 1 on n failed: KeyError: 1 (exit code 1)",
         "error: rank 1 on n failed: KeyError: 1 (exit code 1)\n  culprit: rank 1 on n, the only rank that failed by itself\n"},
        {"lost node2: no answer",
         "started 2026-11-21T12:40:03Z, failed after 3.500 s\nerror: lost node2: no answer\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
        struct dd_err err = {0};
        char text[2000];
        const int n = snprintf(text, sizeof(text), old, rows[i].cause);
        assert_int_equal(report_read(text, (size_t)n, &out, &err), 0);
        if (strstr(dd_buf_str(&out), rows[i].printed) == NULL)
            fail_msg("%s", dd_buf_str(&out));
    }
}

static void what_is_no_report_is_refused_in_one_sentence(void **state)
{
    (void)state;
    static const char *const files[] = {
        "",
        "{",
        "[]",
        "null",
        "7",
        "{}",
        "{\"version\":2}",
        "{\"version\":\"1\"}",
        "{\"version\":1,\"version\":1}",
        "{\"version\":1,\"nodes\":-1}",
        "{\"version\":1,\"nodes\":99999999999}",
        "\xff\xfe",
        "{\"version\":1,\"nodes\":1,\"world_size\":1,\"restarts\":0,\"code\":0,\"rounds\":[],\"failures\":[7],\"failed\":1}",
        "{\"version\":1,\"nodes\":1,\"world_size\":1,\"restarts\":0,\"code\":0,\"rounds\":[],\"failures\":{},\"failed\":1}",
        "{\"version\":1,\"nodes\":1,\"world_size\":1,\"restarts\":0,\"code\":0,\"rounds\":[],\"failures\":[],\"failed\":0,"
        "\"others\":{\"ended_with_0\":0,\"stopped\":0,\"killed\":0},\"ended\":-1}",
        "{\"version\":1,\"nodes\":1,\"world_size\":1,\"restarts\":0,\"code\":0,\"rounds\":[],\"failures\":[],\"failed\":0,"
        "\"others\":{\"ended_with_0\":0,\"stopped\":0,\"killed\":0},\"ended\":1e300}",
        "{\"version\":1,\"nodes\":1,\"world_size\":1,\"restarts\":0,\"code\":0,\"rounds\":[],\"failures\":[],\"failed\":0,"
        "\"others\":{\"ended_with_0\":0,\"stopped\":0,\"killed\":0},\"ended\":1,\"job\":{}}",
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
        struct dd_err err = {0};
        if (report_read(files[i], strlen(files[i]), &out, &err) != -EINVAL)
            fail_msg("accepted: %s", files[i]);
        assert_true(out.len == 0 && strstr(err.text, "report of ddrun: ") != NULL);
        assert_null(strchr(err.text, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_and_collectives_are_printed_again),
        cmocka_unit_test(report_of_a_failure_is_printed_again),
        cmocka_unit_test(report_of_many_failures_is_printed_again),
        cmocka_unit_test(success_and_other_ends_are_printed_again),
        cmocka_unit_test(report_of_an_earlier_version_is_printed),
        cmocka_unit_test(what_is_no_report_is_refused_in_one_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
