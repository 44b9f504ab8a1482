/* report: the phases of a node on the wire and as trace events, and their summary. */
#include "base/buf.h"
#include "report/phases.h"
#include "report/timeline_summary.h"
#include "report/trace_events.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS INT64_C(1000000)
#define T0 (INT64_C(1795000000000) * MS)

/* ---- the wire ---- */

static void phase_comes_back_as_it_was_sent(void **state)
{
    (void)state;
    for (int kind = 0; kind < PHASE_KIND_MAX; kind++) {
        const struct phase sent = {.kind = (enum phase_kind)kind,
                                   .rank = phase_rows[kind].of_rank ? 65535 : -1,
                                   .value = 255,
                                   .begin_ns = INT64_MAX - 1,
                                   .end_ns = INT64_MAX};
        struct phase got;
        char text[PHASE_TEXT_MAX];
        phase_format(text, &sent);
        assert_int_equal(phase_parse(&got, text), 0);
        assert_int_equal(got.kind, sent.kind);
        assert_int_equal(got.rank, sent.rank);
        assert_int_equal(got.value, sent.value);
        assert_int_equal(got.begin_ns, sent.begin_ns);
        assert_int_equal(got.end_ns, phase_rows[kind].instant ? sent.begin_ns : sent.end_ns);
    }
}

static void phase_of_a_peer_is_refused_unless_every_field_fits(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } rows[] = {
        {"join -1 5 9 0", 0},
        {"worker 0 5 9 143", 0},
        {"warm -1 5 9 0", -ENOENT}, /* a phase of another version */
        {"", -EPROTO},
        {"join", -EPROTO},
        {"join -1 5 9", -EPROTO},
        {"join -1 5 9 0 ", -EPROTO},
        {"join -1 5 9 0 0", -EPROTO},
        {"join  -1 5 9 0", -EPROTO},
        {"join 0 5 9 0", -EPROTO},    /* join has no rank */
        {"worker -1 5 9 0", -EPROTO}, /* worker needs a rank */
        {"join -2 5 9 0", -EPROTO},
        {"worker 999999999 5 9 0", -EPROTO},
        {"join -1 9 5 0", -EPROTO}, /* ends before it begins */
        {"join -1 -5 9 0", -EPROTO},
        {"join -1 5 9223372036854775808 0", -EPROTO},
        {"join -1 5 9 -1", -EPROTO},
        {"join -1 5 9 99999999", -EPROTO},
        {"join -1 0x5 9 0", -EPROTO},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct phase p;
        assert_int_equal(phase_parse(&p, rows[i].text), rows[i].rc);
    }
    char longest[2 * PHASE_TEXT_MAX];
    struct phase p;
    memset(longest, 'j', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(phase_parse(&p, longest), -EPROTO);
}

/* ---- events ---- */

static void put(struct dd_buf *out, bool *started, int pid, int round, struct phase p)
{
    assert_int_equal(trace_event_put_phase(out, started, pid, round, &p), 0);
}

static void events_are_an_array_of_the_trace_event_format(void **state)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    bool started = false;
    (void)state;
    assert_int_equal(trace_event_put_name(&out, &started, 1, -1, "n\xff\"1"), 0);
    assert_int_equal(trace_event_put_name(&out, &started, 1, trace_tid_of(3), "rank 3"), 0);
    put(&out, &started, 1, 0, (struct phase){PHASE_JOIN, -1, 0, 1999, 2000});
    put(&out, &started, 1, -1, (struct phase){PHASE_START, -1, 0, 5000, 9000});
    put(&out, &started, 1, 2, (struct phase){PHASE_WORKER, 3, 7, 3000, 10000});
    put(&out, &started, 1, 2, (struct phase){PHASE_FIRST_OUTPUT, 3, 0, 4000, 4000});
    assert_int_equal(trace_event_put(&out, &started,
                                     &(struct trace_event){.type = TRACE_INSTANT,
                                                           .name = "exec",
                                                           .begin_ns = 7000,
                                                           .args = json_pack("{s:s}", "job", "7")}),
                     0);
    assert_int_equal(dd_buf_puts(&out, TRACE_END), 0);
    assert_string_equal(
        dd_buf_str(&out),
        "[\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"n?\\\"1\"}},\n"
        "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1000003,\"args\":{\"name\":\"rank 3\"}},\n"
        "{\"name\":\"join\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":1,\"dur\":1,\"args\":{\"round\":0}},\n"
        "{\"name\":\"start\",\"ph\":\"X\",\"pid\":1,\"tid\":0,\"ts\":5,\"dur\":4},\n"
        "{\"name\":\"worker\",\"ph\":\"X\",\"pid\":1,\"tid\":1000003,\"ts\":3,\"dur\":7,"
        "\"args\":{\"round\":2,\"code\":7}},\n"
        "{\"name\":\"first-output\",\"ph\":\"i\",\"pid\":1,\"tid\":1000003,\"ts\":4,\"s\":\"t\","
        "\"args\":{\"round\":2}},\n"
        "{\"name\":\"exec\",\"ph\":\"i\",\"pid\":0,\"tid\":0,\"ts\":7,\"s\":\"p\",\"args\":{\"job\":\"7\"}}\n"
        "]\n");
    json_t *all = json_loadb((char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_array_size(all), 7);
    json_decref(all);
}

/* ---- the summary ---- */

static void put_job(struct dd_buf *out, bool *started, const char *name, int64_t begin, int64_t end,
                    json_t *args)
{
    assert_int_equal(
        trace_event_put(out, started,
                        &(struct trace_event){.type = end > begin ? TRACE_SPAN : TRACE_INSTANT,
                                              .name = name,
                                              .begin_ns = (uint64_t)(T0 + begin),
                                              .end_ns = (uint64_t)(T0 + end),
                                              .args = args}),
        0);
}

static void put_node(struct dd_buf *out, bool *started, int pid, int round, struct phase p)
{
    p.begin_ns += T0;
    p.end_ns += T0;
    put(out, started, pid, round, p);
}

/* Three nodes; n3 starts 2 s late; rank 1 fails in round 0. */
static void make_timeline(struct dd_buf *out)
{
    bool started = false;
    char name[8];
    put_job(out, &started, "exec", 0, 0, json_pack("{s:s}", "job", "slurm-7.0"));
    for (int n = 1; n <= 3; n++) {
        const int64_t late = n == 3 ? 2000 * MS : n * MS;
        (void)snprintf(name, sizeof(name), "n%d", n);
        assert_int_equal(trace_event_put_name(out, &started, n, -1, name), 0);
        put_node(out, &started, n, -1, (struct phase){PHASE_START, -1, 0, 0, late});
        put_node(out, &started, n, -1, (struct phase){PHASE_CONNECT, -1, 0, late, late + 1000});
        put_node(out, &started, n, 0, (struct phase){PHASE_JOIN, -1, 0, late, 2010 * MS});
        put_node(out, &started, n, 0, (struct phase){PHASE_SPAWN, -1, 0, 2010 * MS, 2020 * MS});
        put_node(out, &started, n, 0,
                 (struct phase){PHASE_SPAWNED, n - 1, 0, (2010 + n) * MS, (2010 + n) * MS});
        put_node(out, &started, n, 0,
                 (struct phase){PHASE_FIRST_OUTPUT, n - 1, 0, 2100 * MS, 2100 * MS});
    }
    put_job(out, &started, "exit", 5000 * MS, 5000 * MS,
            json_pack("{s:i s:i s:s}", "round", 0, "rank", 1, "node", "n2"));
    put_node(out, &started, 1, 0, (struct phase){PHASE_STOP, -1, 0, 5000 * MS, 5300 * MS});
    put_node(out, &started, 3, 0, (struct phase){PHASE_STOP, -1, 0, 5000 * MS, 5100 * MS});
    put_job(out, &started, "round 0", 2010 * MS, 5400 * MS,
            json_pack("{s:i s:i}", "round", 0, "workers", 3));
    put_node(out, &started, 3, 1, (struct phase){PHASE_RESTART, -1, 0, 5100 * MS, 5400 * MS});
    put_node(out, &started, 3, 1, (struct phase){PHASE_SPAWNED, 2, 0, 5500 * MS, 5500 * MS});
}

static const char head[] = "job slurm-7.0: 9.000 s, exit code 0\n";
static const char body[] = "from exec to the first worker: 2.011 s; to the last: 2.013 s\n"
                           "last node: n3, ready 2.000 s after exec\n"
                           "  phase              median     slowest\n"
                           "  start             0.002 s     2.000 s  n3\n"
                           "  join              2.008 s     2.009 s  n1\n"
                           "  spawn             0.010 s     0.010 s  n";
static const char rounds[] =
    "  first-output      0.088 s     0.089 s  rank 0 on n1\n"
    "  below 1 ms on all nodes: connect\n"
    "round 0: 3.390 s, workers: 3, rank 1 on n2 failed; stop 0.300 s (slowest: n1); "
    "wait for the next plan 0.300 s (slowest: n3); workers again after 0.500 s\n";

static void summary_says_where_the_time_went(void **state)
{
    DD_AUTO(buf) struct dd_buf file = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    bool started = true;
    (void)state;
    make_timeline(&file);
    put_job(&file, &started, "round 1", 5400 * MS, 9000 * MS,
            json_pack("{s:i s:i}", "round", 1, "workers", 3));
    put_job(&file, &started, "finish", 9000 * MS, 9000 * MS, json_pack("{s:i}", "code", 0));
    assert_int_equal(dd_buf_puts(&file, TRACE_END), 0);
    assert_int_equal(timeline_summary(&out, (char *)file.data, file.len, NULL), 0);
    const char *text = dd_buf_str(&out);
    assert_memory_equal(text, head, strlen(head));
    assert_memory_equal(text + strlen(head), body, strlen(body));
    assert_non_null(strstr(text, rounds));
    assert_string_equal(strstr(text, "round 1"), "round 1: 3.600 s, workers: 3\n");
}

static void summary_as_json_has_the_same_times(void **state)
{
    DD_AUTO(buf) struct dd_buf file = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    bool started = true;
    (void)state;
    make_timeline(&file);
    put_job(&file, &started, "round 1", 5400 * MS, 9000 * MS,
            json_pack("{s:i s:i}", "round", 1, "workers", 3));
    put_job(&file, &started, "finish", 9000 * MS, 9000 * MS, json_pack("{s:i}", "code", 0));
    assert_int_equal(timeline_summary_json(&out, (char *)file.data, file.len, NULL), 0);
    json_t *o = json_loadb((char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(o, "rounds");
    const json_t *first = json_array_get(list, 0);
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_integer_value(json_object_get(o, "code")), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "failed_rank")), 1);
    assert_string_equal(json_string_value(json_object_get(first, "failed_node")), "n2");
    assert_true(json_real_value(json_object_get(first, "seconds")) == 3.39);
    assert_true(json_is_null(json_object_get(json_array_get(list, 1), "failed_rank")));
    const json_t *stop = json_array_get(json_object_get(first, "phases"), 0);
    assert_string_equal(json_string_value(json_object_get(stop, "phase")), "stop");
    assert_string_equal(json_string_value(json_object_get(stop, "node")), "n1");
    assert_true(json_real_value(json_object_get(stop, "slowest")) == 0.3);
    assert_true(json_array_size(json_object_get(o, "phases")) > 3);
    json_decref(o);
}

/* The file of a killed daemon: the array has no end, and the last event may be truncated. */
static void summary_takes_what_was_written_of_a_file(void **state)
{
    DD_AUTO(buf) struct dd_buf file = DD_BUF_INIT(1 << 16);
    (void)state;
    make_timeline(&file);
    const char *nl = memchr(file.data, '\n', file.len);
    for (int i = 0; i < 2;
         i++) /* skip the separator and the first event, without which the job is unknown */
        nl = memchr(nl + 1, '\n', file.len - (size_t)(nl + 1 - (char *)file.data));
    for (size_t n = (size_t)(nl - (char *)file.data); n <= file.len; n++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        assert_int_equal(timeline_summary(&out, (char *)file.data, n, NULL), 0);
        assert_memory_equal(dd_buf_str(&out), "job slurm-7.0\n", 14);
    }
}

static void summary_of_a_damaged_file_ends(void **state)
{
    static const char text[] =
        "[{\"name\":\"exec\",\"pid\":0,\"args\":{\"job\":1}},{\"name\":7,\"pid\":1},"
        "{\"pid\":0,\"args\":{\"round\":2147483647}}]";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    (void)state;
    assert_int_equal(timeline_summary(&out, text, strlen(text), NULL), 0);
    assert_string_equal(dd_buf_str(&out), "job \nno node has sent its phases\n");
}

/* ddrun ends all workers of a job that hung: the first of them is not to blame. */
static void summary_names_no_rank_of_a_job_that_hung(void **state)
{
    static const char text[] =
        "[{\"name\":\"exec\",\"pid\":0,\"args\":{\"job\":\"j\"}},\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"n1\"}},\n"
        "{\"name\":\"join\",\"pid\":1,\"ts\":1,\"dur\":5000,\"args\":{\"round\":0}},\n"
        "{\"name\":\"exit\",\"pid\":0,\"args\":{\"round\":0,\"rank\":1,\"node\":\"n1\","
        "\"text\":\"the job hung: no output for 25 s\"}}]";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(1 << 16);
    (void)state;
    assert_int_equal(timeline_summary(&out, text, strlen(text), NULL), 0);
    assert_non_null(strstr(dd_buf_str(&out), ", the job hung"));
    assert_null(strstr(dd_buf_str(&out), "rank 1"));
    assert_int_equal(timeline_summary_json(&json, text, strlen(text), NULL), 0);
    assert_non_null(strstr(dd_buf_str(&json), "\"failed_rank\": null"));
}

/* The file may be of another user: no text of it may control the terminal. */
static void summary_escapes_the_texts_of_the_file(void **state)
{
    static const char text[] =
        "[{\"name\":\"exec\",\"pid\":0,\"args\":{\"job\":\"j\\u001b[2J\"}},\n"
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"n\\u001b]0;x\\u0007\"}},\n"
        "{\"name\":\"join\",\"pid\":1,\"ts\":1,\"dur\":5000,\"args\":{\"round\":0}},\n"
        "{\"name\":\"join\",\"pid\":1,\"ts\":2,\"dur\":5000,\"args\":{\"round\":0}},\n"
        "{\"name\":\"exit\",\"pid\":0,\"args\":{\"round\":0,\"rank\":1,\"node\":\"m\\u009b2J\\nx\"}}]";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    (void)state;
    assert_int_equal(timeline_summary(&out, text, strlen(text), NULL), 0);
    const char *shown = dd_buf_str(&out);
    for (const char *c = shown; *c != '\0'; c++)
        assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
    assert_non_null(strstr(shown, "job j\\x1b[2J\n"));
    assert_non_null(strstr(shown, "last node: n\\x1b]0;x\\x07, "));
    assert_non_null(strstr(shown, " s  n\\x1b]0;x\\x07\n"));
    assert_non_null(strstr(shown, "rank 1 on m\\xc2\\x9b2J\\x0ax failed"));
}

static void summary_refuses_what_is_no_timeline(void **state)
{
    static const char *const texts[] = {
        "", "[", "]", "[]", "{}", "x", "[1,\"a\",null]", "[{\"pid\":0}]"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
        struct dd_err err;
        assert_int_equal(timeline_summary(&out, texts[i], strlen(texts[i]), &err), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phase_comes_back_as_it_was_sent),
        cmocka_unit_test(phase_of_a_peer_is_refused_unless_every_field_fits),
        cmocka_unit_test(events_are_an_array_of_the_trace_event_format),
        cmocka_unit_test(summary_says_where_the_time_went),
        cmocka_unit_test(summary_as_json_has_the_same_times),
        cmocka_unit_test(summary_takes_what_was_written_of_a_file),
        cmocka_unit_test(summary_of_a_damaged_file_ends),
        cmocka_unit_test(summary_names_no_rank_of_a_job_that_hung),
        cmocka_unit_test(summary_escapes_the_texts_of_the_file),
        cmocka_unit_test(summary_refuses_what_is_no_timeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
