/* report: the first failure by time over all nodes, in its text and JSON forms. */
#include "report/error_file.h"
#include "report/report.h"
#include "report/stacks.h"
#include "tests/unit/report_world.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void exception_of_a_rank_with_a_process_group_is_in_the_sentence(void **state)
{
    static const struct {
        const char *tail, *sentence;
    } rows[] = {
        {"[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: boom\n",
         "rank 3 on node2 failed: ValueError: boom (exit code 1)"},
        {"[rank12]: KeyError: 'x'", "rank 3 on node2 failed: KeyError: 'x' (exit code 1)"},
        {"[rank3]:[W1122 10:00:00] Warning: leaked", "rank 3 on node2 failed (exit code 1)"},
        {"[rank]: ValueError: boom", "rank 3 on node2 failed (exit code 1)"},
        {"[rank3", "rank 3 on node2 failed (exit code 1)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        struct report_exit e = failing(3, START + S);
        e.tail = rows[i].tail;
        assert_int_equal(report_sentence(&e, &out), 0);
        assert_string_equal(dd_buf_str(&out), rows[i].sentence);
    }
}

static void first_cause_is_the_earliest_whatever_came_first(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    report_round(r, 0, 4, START + S);
    struct report_exit late = failing(0, START + 3 * S);
    late.error = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer";
    struct report_exit first = failing(3, START + 2 * S);
    first.error = "ValueError: boom\nand more";
    first.trace = "  File \"a.py\", line 8, in main\n    raise ValueError(\"boom\")";
    first.log = "logs/x/attempt_0/1/stderr.log";
    assert_int_equal(report_exit_add(r, &late, true), 0);
    assert_int_equal(report_exit_add(r, &first, false), 0);
    assert_int_equal(report_ends_add(r, &(struct report_ends){.left = 1}), 0);
    assert_int_equal(report_ends_add(r, &(struct report_ends){.stopped = 1}), 0);
    report_finish(r, "what the machine thought", 1, START + 4 * S);
    DD_AUTO(free) char *text = text_of(r);
    assert_string_equal(
        text,
        "rank 3 on node2 failed: ValueError: boom (exit code 1)\n"
        "  culprit: rank 3 on node2, the first of 2 ranks to fail; 1 of the other failures only follows from a lost or late peer\n"
        "  local rank 1, pid 4003, 1.000 s after the start of the round, 2026-11-21T12:40:05Z\n"
        "  and more\n"
        "  last lines of the traceback:\n"
        "    File \"a.py\", line 8, in main\n"
        "      raise ValueError(\"boom\")\n"
        "  complete stderr: logs/x/attempt_0/1/stderr.log on node2\n"
        "  others: 1 had already exited with 0, 1 was stopped, 1 failed later:\n"
        "    1.000 s later rank 0 on node1 failed: RuntimeError: "
        "[gloo/transport/tcp/pair.cc:553] Connection closed by peer (exit code 1)\n");
    json_t *o = json_of(r, false);
    assert_string_equal(json_string_value(json_object_get(o, "cause")),
                        "rank 3 on node2 failed: ValueError: boom (exit code 1)");
    json_t *f = json_array_get(json_object_get(o, "failures"), 0);
    assert_int_equal(json_integer_value(json_object_get(f, "rank")), 3);
    assert_string_equal(json_string_value(json_object_get(f, "exception")), "ValueError");
    assert_int_equal(json_array_size(json_object_get(f, "traceback")), 2);
    assert_true(json_real_value(json_object_get(f, "at")) == 2.0);
    json_decref(o);
    report_free(r);
}

static void what_ended_the_round_before_is_the_cause(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    report_round(r, 0, 4, START);
    struct report_exit e = failing(0, START + S);
    assert_int_equal(report_exit_add(r, &e, false), 0);
    report_finish(r, "lost node2: no answer", 1, START + 2 * S);
    DD_AUTO(free) char *text = text_of(r);
    assert_string_equal(text, "lost node2: no answer");
    json_t *o = json_of(r, false);
    assert_string_equal(json_string_value(json_object_get(o, "cause")), "lost node2: no answer");
    assert_int_equal(json_integer_value(json_object_get(o, "failed")), 1);
    json_decref(o);
    report_free(r);
}

static void success_has_times_and_the_rounds_before(void **state)
{
    (void)state;
    struct report *r = fresh(3);
    report_round(r, 0, 4, START + S);
    struct report_exit e = failing(1, START + 2 * S);
    e.signal = SIGKILL;
    e.code = 137;
    e.oom = true;
    assert_int_equal(report_exit_add(r, &e, true), 0);
    report_round(r, 1, 4, START + 3 * S);
    report_finish(r, "", 0, START + 9 * S);
    DD_AUTO(free) char *text = text_of(r);
    assert_string_equal(text, "");
    json_t *o = json_of(r, false);
    assert_true(json_is_true(json_object_get(o, "ok")));
    assert_true(json_is_null(json_object_get(o, "cause")));
    assert_int_equal(json_array_size(json_object_get(o, "failures")), 0);
    json_t *rounds = json_object_get(o, "rounds");
    assert_int_equal(json_array_size(rounds), 2);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(rounds, 0), "cause")),
        "rank 1 on node1 was killed by signal 9 (SIGKILL): killed by the kernel, out of memory");
    assert_true(json_real_value(json_object_get(json_array_get(rounds, 1), "ended")) == 9.0);
    json_decref(o);
    report_free(r);
}

static void everything_is_bounded(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    DD_AUTO(free) char *long_text = malloc(4001);
    memset(long_text, '\033', 4000);
    long_text[4000] = '\0';
    report_round(r, 0, 100000, START);
    for (int i = 0; i < 1000; i++) {
        struct report_exit e = failing(i, START + (uint64_t)(2000 - i));
        e.tail = e.trace = long_text;
        e.error = long_text + 3000;
        assert_int_equal(report_exit_add(r, &e, true), 0);
    }
    for (int i = 1; i < 1000; i++)
        report_round(r, i, 4, START + S);
    for (int i = 0; i < 1000; i++) {
        struct report_exit e = failing(i, START + (uint64_t)(2000 - i));
        e.tail = e.trace = long_text;
        e.error = long_text + 3000;
        assert_int_equal(report_exit_add(r, &e, true), 0);
    }
    assert_int_equal(report_first_failure(r)->rank, 999); /* the earliest failure is kept */
    report_finish(r, "", 1, START + S);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(REPORT_JSON_MAX);
    assert_int_equal(report_json(r, false, &out), -EMSGSIZE);
    json_t *o = json_of(r, true);
    assert_int_equal(json_integer_value(json_object_get(o, "failed")), 1000);
    assert_int_equal(json_array_size(json_object_get(o, "failures")), REPORT_EXITS);
    assert_int_equal(json_array_size(json_object_get(o, "rounds")), REPORT_ROUNDS);
    json_decref(o);
    report_free(r);
}

static void text_is_fit_for_a_terminal(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    report_round(r, 0, 1, START);
    struct report_exit e = failing(0, START);
    e.tail = "\033[31mred\033[0m\tand\001\xff\n10%\r20%\nk\xc3\xb6ln\n";
    assert_int_equal(report_exit_add(r, &e, true), 0);
    report_finish(r, "", 1, START + S);
    DD_AUTO(free) char *text = text_of(r);
    assert_non_null(
        strstr(text, "  last lines of output:\n    red    and??\n    10%20%\n    k\xc3\xb6ln\n"));
    report_free(r);
}

static void error_file_is_read_in_both_forms(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message, *trace; /* message NULL: refused */
    } rows[] = {
        {"{\"message\":{\"message\":\"ValueError: boom\",\"extraInfo\":{\"py_callstack\":\"Traceback (most recent call "
         "last):\\n  File \\\"/x/torch/distributed/elastic/multiprocessing/errors/__init__.py\\\", line 3, in wrapper\\n    "
         "return f()\\n  File \\\"a.py\\\", line 8, in main\\n    raise\\nValueError: boom\\n\",\"timestamp\":\"17\"}}}",
         "ValueError: boom", "  File \"a.py\", line 8, in main\n    raise"},
        {"{\"message\":\"text\",\"timestamp\":17}", "text", ""},
        {"{\"message\":{\"message\":\"no extra\"}}", "no extra", ""},
        {"{\"message\":{\"message\":\"\",\"extraInfo\":7}}", "", ""},
        {"{\"message\":7}", NULL, NULL},
        {"{\"message\":{}}", NULL, NULL},
        {"[]", NULL, NULL},
        {"", NULL, NULL},
        {"{\"message\":\"cut", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct report_error e = {0};
        int rc = report_error_parse(&e, rows[i].json, strlen(rows[i].json));
        assert_int_equal(rc, rows[i].message == NULL ? -EPROTO : 0);
        if (rows[i].message != NULL) {
            assert_string_equal(e.message, rows[i].message);
            assert_string_equal(e.trace, rows[i].trace);
        }
        report_error_done(&e);
    }
}

static void warnings_of_health_checks_are_kept_once_and_bounded(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    const struct report_exit e = failing(1, START + S);
    report_round(r, 0, 4, START);
    assert_int_equal(report_exit_add(r, &e, true), 0);
    assert_int_equal(report_warning_add(r, "node2", "GPU 3 is hot\x1b[31m"), 0);
    assert_int_equal(report_warning_add(r, "node2", "GPU 3 is hot\x1b[31m"), 0);
    report_finish(r, "", 1, START + 2 * S);
    DD_AUTO(free) char *one = text_of(r);
    const char *line = strstr(one, "  warning: node2: GPU 3 is hot");
    assert_non_null(line);
    assert_null(strstr(line + 10, "warning"));
    assert_null(strchr(one, '\x1b'));
    for (int i = 0; i < 100; i++) {
        char text[40];
        (void)snprintf(text, sizeof(text), "GPU %d is hot", i);
        assert_int_equal(report_warning_add(r, "node1", text), 0);
    }
    json_t *o = json_of(r, false);
    const json_t *list = json_object_get(o, "warnings");
    assert_int_equal(json_array_size(list), REPORT_WARNINGS);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "text")),
                        "GPU 0 is hot");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "node")),
                        "node1");
    json_decref(o);
    DD_AUTO(free) char *many = text_of(r);
    assert_non_null(strstr(many, "28 more warnings; --report=FILE writes up to 32"));
    report_free(r);
}

static void stragglers_of_the_last_round_are_in_the_text_and_all_in_the_file(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    const struct report_exit e = failing(1, START + 4 * S);
    report_round(r, 0, 4, START);
    assert_int_equal(report_straggler_add(r, "node1", 1, "rank 1 on node1 is slow", START + S), 0);
    report_round(r, 1, 4, START + 2 * S);
    assert_int_equal(report_straggler_add(r, "node2", 2, "rank 2 was slow", START + 2 * S), 0);
    assert_int_equal(report_straggler_add(r, "node3", 5, "rank 5 is\x1b[1m slow", START + 2 * S),
                     0);
    report_straggler_over(r, "node1", START + 3 * S); /* not in this round */
    report_straggler_over(r, "node2", START + 3 * S);
    assert_int_equal(report_exit_add(r, &e, true), 0);
    report_finish(r, "", 1, START + 5 * S);
    DD_AUTO(free) char *text = text_of(r);
    const char *line = strstr(text, "  straggler: rank 5 is");
    assert_non_null(line);
    assert_null(strchr(text, '\x1b'));
    assert_null(strstr(text, "node1 is slow"));
    assert_null(strstr(text, "was slow"));
    json_t *o = json_of(r, false);
    const json_t *list = json_object_get(o, "stragglers");
    assert_int_equal(json_array_size(list), 3);
    const json_t *first = json_array_get(list, 0);
    assert_int_equal(json_integer_value(json_object_get(first, "round")), 0);
    assert_true(json_is_null(json_object_get(first, "to")));
    assert_true(json_is_real(json_object_get(json_array_get(list, 1), "to")));
    json_decref(o);
    for (int i = 0; i < 100; i++)
        assert_int_equal(report_straggler_add(r, "node4", i, "rank 6 is slow", START + 3 * S), 0);
    report_free(r);
}

static struct report *charged(const char *cause, int last)
{
    static const char *const nodes[] = {"node1", "node2\x1b[31m", "node1"};
    static const int counts[] = {1, 1, 2};
    struct report *r = fresh(3);
    for (int i = 0; i < last; i++) {
        const struct report_exit e = failing(1, START + S);
        report_round(r, i, 4, START);
        if (cause[0] == '\0')
            assert_int_equal(report_exit_add(r, &e, true), 0);
        assert_int_equal(report_charge_set(r, nodes[i], counts[i], "ValueError: boom"), 0);
    }
    report_finish(r, cause, 1, START + 2 * S);
    return r;
}

static void charges_of_nodes_are_in_the_file_and_several_in_the_text(void **state)
{
    static const struct {
        const char *cause;
        int last;
        const char *line;
    } rows[] = {
        {"", 0, NULL},
        {"", 1, NULL}, /* the first line names the node */
        {"", 3, "\n  failures charged: 2 to node1, 1 to node2"},
        {"lost node1: it ended", 3, "lost node1: it ended\n  failures charged: 2 to node1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct report *r = charged(rows[i].cause, rows[i].last);
        DD_AUTO(free) char *text = text_of(r);
        json_t *o = json_of(r, false);
        const json_t *list = json_object_get(o, "charges");
        assert_true((strstr(text, "failures charged") != NULL) == (rows[i].line != NULL));
        assert_true(rows[i].line == NULL || strstr(text, rows[i].line) != NULL);
        assert_null(strchr(text, '\x1b'));
        assert_int_equal(json_array_size(list), rows[i].last < 2 ? rows[i].last : 2);
        const json_t *first = json_array_get(list, 0);
        assert_int_equal(json_integer_value(json_object_get(first, "charges")),
                         rows[i].last == 3 ? 2 : rows[i].last);
        json_decref(o);
        report_free(r);
    }
}

static void charges_of_too_many_nodes_are_dropped(void **state)
{
    (void)state;
    struct report *r = fresh(0);
    for (int i = 0; i < REPORT_CHARGES + 10; i++) {
        char node[16];
        (void)snprintf(node, sizeof(node), "n%d", i);
        assert_int_equal(report_charge_set(r, node, 1, ""), 0);
    }
    report_finish(r, "lost n1", 1, START + S);
    json_t *o = json_of(r, false);
    assert_int_equal(json_array_size(json_object_get(o, "charges")), REPORT_CHARGES);
    json_decref(o);
    DD_AUTO(free) char *text = text_of(r);
    assert_non_null(strstr(text, "1 to n7, and 56 more nodes"));
    report_free(r);
}

static void native_frames_do_not_push_the_cause_out_of_the_last_lines(void **state)
{
    (void)state;
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 16), out = DD_BUF_INIT(1 << 16);
    assert_int_equal(dd_buf_puts(&text, "CUDA error: device-side assert triggered\n"), 0);
    for (int i = 0; i < 60; i++)
        assert_int_equal(dd_buf_printf(&text, "frame #%d: c10::Error::Error() + 0x9d (0x7f)\n", i),
                         0);
    assert_int_equal(dd_buf_puts(&text, "the last line\n"), 0);
    assert_int_equal(report_tail(dd_buf_str(&text), &out), 0);
    assert_string_equal(dd_buf_str(&out),
                        "CUDA error: device-side assert triggered\nthe last line\n");
    dd_buf_clear(&out);
    assert_int_equal(report_tail("frame #0: f() (0x1)\n", &out), 0); /* nothing else is known */
    assert_string_equal(dd_buf_str(&out), "frame #0: f() (0x1)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(native_frames_do_not_push_the_cause_out_of_the_last_lines),
        cmocka_unit_test(exception_of_a_rank_with_a_process_group_is_in_the_sentence),
        cmocka_unit_test(first_cause_is_the_earliest_whatever_came_first),
        cmocka_unit_test(what_ended_the_round_before_is_the_cause),
        cmocka_unit_test(success_has_times_and_the_rounds_before),
        cmocka_unit_test(everything_is_bounded),
        cmocka_unit_test(stragglers_of_the_last_round_are_in_the_text_and_all_in_the_file),
        cmocka_unit_test(charges_of_nodes_are_in_the_file_and_several_in_the_text),
        cmocka_unit_test(charges_of_too_many_nodes_are_dropped),
        cmocka_unit_test(warnings_of_health_checks_are_kept_once_and_bounded),
        cmocka_unit_test(text_is_fit_for_a_terminal),
        cmocka_unit_test(error_file_is_read_in_both_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
