/* ddctl top: the lines of its screen at fixed sizes, its keys, and that no text of a job member
 * becomes a control of the terminal. */
#include "base/columns.h"
#include "cmd/ddctl_top_json.h"
#include "cmd/ddctl_top_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- columns ---- */

static const char *columns_of(struct dd_buf *out, const char *text, int width, bool utf8, int *used)
{
    dd_buf_clear(out);
    *used = dd_columns_put(out, &text, width, utf8);
    return dd_buf_str(out);
}

static void text_fits_into_columns_and_controls_are_neutralised(void **state)
{
    static const struct {
        const char *text;
        int width;
        bool utf8;
        const char *shown;
        int used;
    } rows[] = {
        {"abc", 2, true, "ab", 2},
        {"abc\ndef", 9, true, "abc", 3},
        {"a\tb\rc\ad", 9, true, "a b?c?d", 7},
        {"\033[31mred\033[0m \033]0;title\atext", 9, true, "red text", 8},
        {"\033]0;title\033\\x\033P1;2|y\033\\z", 9, true, "xz", 2},
        {"\033(Bx\033c\033", 9, true, "x", 1},
        {"\033[12", 9, true, "", 0},
        {"\033[1\nx", 9, true, "", 0},
        {"\xc2\x9b"
         "31mx",
         9, true, "?31mx", 5}, /* C1: CSI */
        {"\x9b"
         "31m\xff",
         9, true, "?31m?", 5},                                    /* not UTF-8 */
        {"\xe6\xbc\xa2\xe5\xad\x97", 3, true, "\xe6\xbc\xa2", 2}, /* two columns each */
        {"\xe6\xbc\xa2", 1, true, "?", 1},
        {"\xf0\x9f\x9a\x80x", 9, true, "\xf0\x9f\x9a\x80x", 3},
        {"e\xcc\x81\xe2\x80\xaex", 9, true, "ex", 2}, /* a combining mark; right to left */
        {"\xc3\xa9x", 9, true, "\xc3\xa9x", 2},
        {"\xc3\xa9x", 9, false, "?x", 2},
        {"x", 0, true, "", 0},
    };
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int used;
        assert_string_equal(columns_of(&out, rows[i].text, rows[i].width, rows[i].utf8, &used),
                            rows[i].shown);
        assert_int_equal(used, rows[i].used);
    }
    dd_buf_clear(&out);
    assert_int_equal(dd_columns_pad(&out, "\xe6\xbc\xa2\xe6\xbc\xa2", 3, true), 0);
    assert_string_equal(dd_buf_str(&out), "\xe6\xbc\xa2 ");
}

static void the_locale_decides_about_utf8(void **state)
{
    (void)state;
    assert_true(dd_columns_are_utf8(NULL, NULL, "en_US.UTF-8"));
    assert_true(dd_columns_are_utf8("C.utf8", "C", "C"));
    assert_true(dd_columns_are_utf8("", "de_DE.utf8", "C"));
    assert_false(dd_columns_are_utf8("C", "en_US.UTF-8", "en_US.UTF-8"));
    assert_false(dd_columns_are_utf8(NULL, NULL, NULL));
}

/* ---- the screen ---- */

#define STATUS(nodes, failed)                                                                      \
    "{\"status\":{\"version\":1,\"job\":\"4711.0\",\"state\":\"running\",\"round\":2,"             \
    "\"restarts\":1,\"max_restarts\":3,\"seconds\":3725,\"missing\":\"\",\"step\":1200,"           \
    "\"nodes\":[" nodes "],\"failed\":[" failed "]}}"
#define NODE(name, workers, state, rank, first, more)                                              \
    "{\"name\":\"" name "\",\"index\":" rank ",\"workers\":" workers ",\"state\":\"" state         \
    "\",\"node_rank\":" rank ",\"first_rank\":" first more "}"
#define SPARE(name) "{\"name\":\"" name "\",\"index\":9,\"workers\":8,\"state\":\"spare\"}"
#define TWO_NODES                                                                                  \
    NODE("node1", "2", "running", "0", "0", "")                                                    \
    "," NODE("node2", "2", "running", "1", "2", ",\"charges\":2") "," SPARE("node3")
#define FAILED                                                                                     \
    "{\"event\":\"exit\",\"time\":\"2026-11-23T10:00:00.000Z\",\"round\":2,\"rank\":2,"            \
    "\"node\":\"node2\",\"code\":1,\"signal\":0,\"text\":\"ValueError: boom\"}"

struct screen {
    struct top_job job;
    struct top_view view;
    struct dd_line lines[1000];
};

static void screen_read(struct screen *s, const char *sample)
{
    struct dd_err err = {0};
    top_job_done(&s->job);
    assert_int_equal(top_job_read(&s->job, sample, strlen(sample), &err), 0);
}

static struct screen *screen_new(const char *sample, int lines, int columns)
{
    struct screen *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->view = TOP_VIEW_INIT;
    s->view.lines = lines;
    s->view.columns = columns;
    s->view.utf8 = true;
    screen_read(s, sample);
    return s;
}

static void screen_clear(struct screen *s)
{
    for (size_t i = 0; i < sizeof(s->lines) / sizeof(s->lines[0]); i++)
        free(DD_TAKE(s->lines[i].text));
}

static void screen_free(struct screen *s)
{
    screen_clear(s);
    top_job_done(&s->job);
    top_view_done(&s->view);
    free(s);
}

/* No line is wider than the terminal, or has a control character. */
static void screen_draw(struct screen *s)
{
    DD_AUTO(buf) struct dd_buf again = DD_BUF_INIT(1 << 16);
    screen_clear(s);
    assert_int_equal(top_view_draw(&s->view, &s->job, s->lines), 0);
    for (int i = 0; i < s->view.lines; i++) {
        const char *text = s->lines[i].text != NULL ? s->lines[i].text : "";
        const char *rest = text;
        dd_buf_clear(&again);
        assert_true(dd_columns_put(&again, &rest, s->view.columns, true) >= 0);
        assert_string_equal(rest, "");
        assert_string_equal(dd_buf_str(&again), text);
    }
}

static const char *line(const struct screen *s, int i)
{
    return s->lines[i].text != NULL ? s->lines[i].text : "";
}

static void key(struct screen *s, enum top_key k, int times)
{
    for (int i = 0; i < times; i++)
        (void)top_view_key(&s->view, &s->job, k);
    screen_draw(s);
}

static void the_screen_of_80x24_shows_job_nodes_and_ranks(void **state)
{
    static const char *const wanted[] = {
        "job 4711.0 running, round 2, 1 of 3 restarts used",
        "2 nodes, 4 workers: 3 running, 1 failed, step 1200, up 1:02:05",
        "first failure: rank 2 on node2: ValueError: boom",
        "  RANK  NODE   STATE     BLAME  LAST LINE                                       ",
        "     0  node1  running       0                                                  ",
        "     1  node1  running       0  ",
        "     2  node2  failed        2  ValueError: boom",
        "     3  node2  running       2  ",
        "     -  node3  spare         0  ",
        "",
    };
    (void)state;
    struct screen *s = screen_new(STATUS(TWO_NODES, FAILED), 24, 80);
    screen_draw(s);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        assert_string_equal(line(s, (int)i), wanted[i]);
    assert_non_null(strstr(line(s, 23), "q quit"));
    assert_non_null(strstr(line(s, 23), "1-5 of 5"));
    assert_int_equal(strlen(line(s, 23)), 80);
    assert_int_equal(s->lines[4].style, DD_LINE_REVERSE); /* selected */
    assert_int_equal(s->lines[6].style, DD_LINE_BAD);
    assert_int_equal(s->lines[2].style, DD_LINE_BAD);
    key(s, TOP_KEY_DOWN, 2);
    assert_int_equal(s->lines[4].style, DD_LINE_PLAIN);
    assert_int_equal(s->lines[6].style, DD_LINE_BAD_REVERSE);
    screen_free(s);
}

#define WORKERS(cpu_ms, at_ms)                                                                      \
    "{\"status\":{\"job\":\"j\",\"state\":\"running\",\"missing\":\"\",\"nodes\":[" TWO_NODES       \
    "],\"failed\":[" FAILED "]},\"workers\":["                                                      \
    "{\"rank\":0,\"pid\":70,\"state\":\"R\",\"cpu_ms\":" cpu_ms                                     \
    ",\"memory_bytes\":1503238553,\"at_ms\":" at_ms ",\"text\":\"step 7 \\u001b[1mloss\"},"         \
    "{\"rank\":1,\"pid\":0,\"state\":\"-\",\"cpu_ms\":0,\"memory_bytes\":0,\"at_ms\":" at_ms        \
    ",\"text\":\"done\"},"                                                                          \
    "{\"rank\":2,\"pid\":72,\"state\":\"S\",\"cpu_ms\":10,\"memory_bytes\":500000,\"at_ms\":" at_ms \
    ",\"text\":\"x\"},{\"rank\":77,\"pid\":1}]}"

static void usage_and_the_last_line_have_columns(void **state)
{
    (void)state;
    struct screen *s = screen_new(WORKERS("1000", "5000"), 24, 80);
    screen_draw(s);
    assert_string_equal(line(s, 1), "2 nodes, 4 workers: 2 running, 1 failed, memory 1.4G");
    struct top_job before = s->job;
    s->job = (struct top_job){0};
    screen_read(s, WORKERS("2500", "6000"));
    top_job_compare(&s->job, &before);
    top_job_done(&before);
    screen_draw(s);
    assert_string_equal(line(s, 1),
                        "2 nodes, 4 workers: 2 running, 1 failed, CPU 150%, memory 1.4G");
    assert_int_equal(strlen(line(s, 4)), 80);
    assert_non_null(
        strstr(line(s, 4), "     0  node1  running     150   1.4G      0  step 7 loss  "));
    assert_string_equal(line(s, 5), "     1  node1  ended         -      -      0  done");
    assert_string_equal(line(s, 6),
                        "     2  node2  failed        0   488K      2  ValueError: boom");
    assert_string_equal(line(s, 7), "     3  node2  running       -      -      2  ");
    screen_free(s);
}

#define GPU(index, percent, memory, clock)                                                         \
    "{\"index\":" index ",\"percent\":" percent ",\"memory_bytes\":" memory                        \
    ",\"memory_total_bytes\":85899345920,\"clock_mhz\":" clock ",\"clock_max_mhz\":1980}"
#define GPU_WORKER(rank, gpus)                                                                     \
    "{\"rank\":" rank ",\"pid\":7,\"cpu_ms\":1,\"memory_bytes\":1503238553,\"at_ms\":1,"           \
    "\"text\":\"x\",\"gpus\":[" gpus "]}"
#define WITH_GPUS                                                                                  \
    "{\"status\":{\"job\":\"j\",\"nodes\":[" TWO_NODES                                             \
    "]},\"workers\":[" GPU_WORKER("0", GPU("0", "97", "65498251264", "1410")) "," GPU_WORKER(      \
        "1", GPU("2", "100", "1073741824", "1980") "," GPU(                                        \
                 "3", "51", "1073741824", "345")) "," GPU_WORKER("2", GPU("0", "null", "null",     \
                                                                          "null")) "]}"

static void gpus_have_a_column_if_the_terminal_is_wide_enough(void **state)
{
    (void)state;
    struct screen *s = screen_new(WITH_GPUS, 24, 100);
    screen_draw(s);
    assert_non_null(strstr(line(s, 3), "    MEM   GPU  GMEM  SM MHZ    BLAME  LAST LINE"));
    assert_non_null(strstr(line(s, 4), "   1.4G   97%   61G 1410/1980      0  x"));
    assert_non_null(strstr(line(s, 5), "   1.4G   76%  2.0G  345/1980      0  x"));
    assert_non_null(strstr(line(s, 6), "   1.4G     -     -                2  x"));
    assert_non_null(strstr(line(s, 7), "      -     -                      2  "));
    s->view.columns = 70;
    screen_draw(s);
    assert_null(strstr(line(s, 3), "GPU"));
    assert_non_null(strstr(line(s, 4), "   1.4G      0  x"));
    screen_free(s);
}

static json_t *json_of(const struct top_job *j)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    assert_int_equal(top_job_json(j, &out), 0);
    json_t *o = json_loadb((const char *)out.data, out.len, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    return o;
}

static void assert_json(const json_t *o, const char *wanted)
{
    DD_AUTO(free) char *text = json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_string_equal(text, wanted);
}

static void the_json_has_what_the_screen_shows(void **state)
{
    (void)state;
    struct screen *s = screen_new(WORKERS("1000", "5000"), 24, 80);
    struct top_job before = s->job;
    s->job = (struct top_job){0};
    screen_read(s, WORKERS("2500", "6000"));
    top_job_compare(&s->job, &before);
    top_job_done(&before);
    json_t *o = json_of(&s->job);
    const json_t *workers = json_object_get(o, "workers");
    assert_int_equal(json_integer_value(json_object_get(o, "cpu_percent")), 150);
    assert_int_equal(json_integer_value(json_object_get(o, "memory_bytes")), 1503738553);
    assert_true(json_is_null(json_object_get(o, "step")));
    assert_json(json_array_get(json_object_get(o, "nodes"), 1),
                "{\"name\":\"node2\",\"state\":\"running\",\"workers\":2,\"charges\":2}");
    assert_int_equal(json_array_size(json_object_get(o, "nodes")), 3);
    assert_int_equal(json_array_size(workers), 4);
    assert_json(
        json_array_get(workers, 0),
        "{\"rank\":0,\"local_rank\":0,\"node\":\"node1\",\"state\":\"running\","
        "\"pid\":70,\"cpu_percent\":150,\"memory_bytes\":1503238553,\"gpus\":[],\"step\":null,"
        "\"step_seconds\":null,\"failure\":null,"
        "\"last_line\":\"step 7 \\u001B[1mloss\"}");
    assert_json(
        json_array_get(workers, 1),
        "{\"rank\":1,\"local_rank\":1,\"node\":\"node1\",\"state\":\"ended\",\"pid\":null,"
        "\"cpu_percent\":null,\"memory_bytes\":null,\"gpus\":[],\"step\":null,\"step_seconds\":null,"
        "\"failure\":null,"
        "\"last_line\":\"done\"}");
    assert_json(json_object_get(json_array_get(workers, 2), "failure"), "\"ValueError: boom\"");
    assert_json(json_object_get(json_array_get(workers, 3), "last_line"), "null");
    json_decref(o);
    screen_free(s);
}

static void the_json_lists_the_gpus_of_each_worker(void **state)
{
    (void)state;
    struct screen *s = screen_new(WITH_GPUS, 24, 80);
    json_t *o = json_of(&s->job);
    const json_t *workers = json_object_get(o, "workers");
    assert_json(
        json_object_get(json_array_get(workers, 1), "gpus"),
        "[" GPU("2", "100", "1073741824", "1980") "," GPU("3", "51", "1073741824", "345") "]");
    assert_json(json_object_get(json_array_get(workers, 2), "gpus"),
                "[" GPU("0", "null", "null", "null") "]");
    assert_json(json_object_get(json_array_get(workers, 3), "gpus"), "[]");
    json_decref(o);
    screen_free(s);
}

#define STEPS(each)                                                                                \
    "{\"status\":{\"job\":\"j\",\"nodes\":[" TWO_NODES "],\"steps\":{\"each\":[" each "]}}}"

static void steps_have_columns_if_ranks_mark_them(void **state)
{
    (void)state;
    struct screen *s = screen_new(
        STEPS("[0,120,51234],[1,9999999,849],[2,-1,8510],[3,121,1250000],[99,1,1]"), 24, 80);
    screen_draw(s);
    assert_non_null(strstr(line(s, 3), "  BLAME     STEP  T/STEP  LAST LINE"));
    assert_string_equal(line(s, 5), "     1  node1  running       0  9999999   849us  ");
    assert_string_equal(line(s, 6), "     2  node2  running       2        -   8.5ms  ");
    assert_string_equal(line(s, 7), "     3  node2  running       2      121   1.25s  ");
    assert_string_equal(line(s, 8), "     -  node3  spare         0        -       -  ");
    json_t *o = json_of(&s->job);
    const json_t *first = json_array_get(json_object_get(o, "workers"), 0);
    assert_json(json_object_get(first, "step"), "120");
    assert_true(json_real_value(json_object_get(first, "step_seconds")) == 0.051234);
    json_decref(o);
    screen_read(s, STEPS("[0,5,86400000001],[0.5,1,1],[],7,[1],[1,2],[1,2,3,4],[-1,1,1]"));
    screen_draw(s);
    assert_non_null(strstr(line(s, 4), "        5       -  "));
    assert_string_equal(line(s, 5), "     1  node1  running       0        -       -  ");
    screen_free(s);
}

static void a_page_that_shows_its_end_follows_it(void **state)
{
    (void)state;
    struct screen *s = screen_new(STATUS(TWO_NODES, ""), 10, 40);
    top_view_text(&s->view, "last lines", "1\n2\n");
    screen_draw(s);
    top_view_more(&s->view, "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    screen_draw(s);
    assert_string_equal(line(s, 8), "9");
    key(s, TOP_KEY_UP, 1);
    top_view_more(&s->view, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    screen_draw(s);
    assert_string_equal(line(s, 8), "8");
    key(s, TOP_KEY_END, 1);
    top_view_more(&s->view, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
    screen_draw(s);
    assert_string_equal(line(s, 8), "11");
    screen_free(s);
}

static void columns_without_values_are_left_out(void **state)
{
    (void)state;
    struct screen *s = screen_new(STATUS(NODE("n", "1", "running", "0", "0", ""), ""), 50, 200);
    screen_draw(s);
    assert_null(strstr(line(s, 3), "BLAME"));
    assert_null(strstr(line(s, 3), "CPU"));
    assert_string_equal(line(s, 2), "");
    assert_int_equal(strlen(line(s, 3)), 200);
    screen_free(s);
}

static void a_notice_replaces_the_first_failure(void **state)
{
    (void)state;
    struct screen *s = screen_new(STATUS(TWO_NODES, FAILED), 24, 80);
    (void)snprintf(s->view.notice, sizeof(s->view.notice), "no answer\033[2J");
    screen_draw(s);
    assert_string_equal(line(s, 2), "no answer");
    screen_free(s);
}

static void stragglers_are_shown_where_nothing_has_failed(void **state)
{
    (void)state;
    struct screen *s = screen_new(
        "{\"status\":{\"job\":\"j\",\"nodes\":[" TWO_NODES "],\"stragglers\":["
        "{\"rank\":2,\"node\":\"node2\",\"text\":\"rank 2 on node2 waits\"},"
        "{\"rank\":3,\"node\":\"node2\",\"text\":\"rank 3 on node2 waits\"}]}}",
        24, 80);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(1 << 16);
    screen_draw(s);
    assert_string_equal(line(s, 2), "straggler (and 1 more): rank 2 on node2 waits");
    assert_int_equal(top_job_json(&s->job, &json), 0);
    assert_non_null(strstr(dd_buf_str(&json), "\"text\": \"rank 3 on node2 waits\""));
    screen_read(s, "{\"status\":{\"job\":\"j\",\"nodes\":[" TWO_NODES "],\"steps\":{"
                   "\"stragglers\":[{\"text\":\"rank 1 on node1 takes long\"}]}}}");
    screen_draw(s);
    assert_string_equal(line(s, 2), "straggler: rank 1 on node1 takes long");
    screen_free(s);
}

static void hostile_texts_do_not_reach_the_terminal(void **state)
{
    (void)state;
    struct screen *s = screen_new(
        STATUS(NODE("a\\u001b[2J\\u009bm", "2", "run\\u0007ning", "0", "0", ""),
               "{\"rank\":1,\"node\":\"\\u001b]0;x\\u0007\",\"code\":1,"
               "\"text\":\"\\u001b[31mred\\u202e\\u000b\\u6f22\\u5b57\\nsecond\\u001b[?1049l\"}"),
        24, 80);
    screen_draw(s);
    assert_non_null(strstr(line(s, 5), "red?\xe6\xbc\xa2\xe5\xad\x97"));
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 16);
    assert_int_equal(top_job_first_failure(&s->job, &text), 0);
    top_view_text(&s->view, "first failure", dd_buf_str(&text));
    screen_draw(s);
    assert_string_equal(line(s, 5), "second");
    DD_AUTO(buf) struct dd_buf plain = DD_BUF_INIT(1 << 16);
    assert_int_equal(top_view_plain(&s->view, &s->job, &plain), 0);
    assert_null(strchr(dd_buf_str(&plain), '\033'));
    screen_free(s);
}

static char *thousand_ranks(void)
{
    DD_AUTO(buf) struct dd_buf nodes = DD_BUF_INIT(1 << 20);
    char *sample = NULL;
    for (int i = 0; i < 125; i++)
        assert_int_equal(dd_buf_printf(&nodes,
                                       "%s{\"name\":\"node%d\",\"index\":%d,\"workers\":8,"
                                       "\"state\":\"running\",\"node_rank\":%d,\"first_rank\":%d}",
                                       i > 0 ? "," : "", i, i, i, 8 * i),
                         0);
    assert_true(
        asprintf(&sample, "{\"status\":{\"job\":\"j\",\"nodes\":[%s]}}", dd_buf_str(&nodes)) > 0);
    return sample;
}

static int first_rank_shown(const struct screen *s)
{
    return atoi(line(s, 4));
}

static void a_thousand_ranks_scroll(void **state)
{
    DD_AUTO(free) char *sample = thousand_ranks();
    (void)state;
    struct screen *s = screen_new(sample, 24, 80);
    screen_draw(s);
    assert_non_null(strstr(line(s, 23), "1-19 of 1000"));
    key(s, TOP_KEY_DOWN, 18);
    assert_int_equal(first_rank_shown(s), 0);
    key(s, TOP_KEY_DOWN, 1);
    assert_int_equal(first_rank_shown(s), 1);
    key(s, TOP_KEY_PAGE_DOWN, 2);
    assert_int_equal(first_rank_shown(s), 39);
    key(s, TOP_KEY_UP, 3);
    assert_int_equal(first_rank_shown(s), 39);
    key(s, TOP_KEY_END, 1);
    assert_non_null(strstr(line(s, 22), " 999  node124  running"));
    assert_int_equal(s->lines[22].style, DD_LINE_REVERSE);
    key(s, TOP_KEY_DOWN, 5);
    assert_int_equal(first_rank_shown(s), 981);
    s->view.lines = 50; /* the terminal has grown */
    screen_draw(s);
    assert_int_equal(first_rank_shown(s), 955);
    key(s, TOP_KEY_HOME, 1);
    assert_int_equal(first_rank_shown(s), 0);
    key(s, TOP_KEY_END, 1);
    screen_read(s, STATUS(TWO_NODES, "")); /* the job has shrunk */
    screen_draw(s);
    assert_int_equal(s->lines[8].style, DD_LINE_REVERSE);
    screen_free(s);
}

static void text_is_wrapped_and_scrolls(void **state)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    (void)state;
    struct screen *s = screen_new(STATUS(TWO_NODES, ""), 10, 40);
    for (int i = 0; i < 20; i++)
        assert_int_equal(dd_buf_printf(&text, "line %d, %040d\n\n", i, i), 0);
    top_view_text(&s->view, "stacks", dd_buf_str(&text));
    screen_draw(s);
    assert_non_null(strstr(line(s, 0), "stacks"));
    assert_non_null(strstr(line(s, 1), "line 0, 000"));
    assert_int_equal(strlen(line(s, 1)), 40);
    assert_string_equal(line(s, 2), "00000000");
    assert_string_equal(line(s, 3), "");
    assert_non_null(strstr(line(s, 9), "1-8 of 60"));
    key(s, TOP_KEY_DOWN, 3);
    assert_non_null(strstr(line(s, 1), "line 1, 000"));
    key(s, TOP_KEY_END, 1);
    assert_string_equal(line(s, 7), "000000019");
    key(s, TOP_KEY_UP, 1);
    assert_string_equal(line(s, 8), "000000019");
    assert_false(top_view_key(&s->view, &s->job, TOP_KEY_QUIT)); /* back, not out */
    screen_draw(s);
    assert_non_null(strstr(line(s, 0), "job 4711.0"));
    assert_true(top_view_key(&s->view, &s->job, TOP_KEY_QUIT));
    screen_free(s);
}

static void a_tiny_terminal_says_so(void **state)
{
    (void)state;
    struct screen *s = screen_new(STATUS(TWO_NODES, ""), 3, 18);
    screen_draw(s);
    assert_string_equal(line(s, 0), "terminal too small");
    s->view.columns = 5;
    screen_draw(s);
    assert_string_equal(line(s, 0), "termi");
    screen_free(s);
}

#define OUT_OF_ORDER                                                                               \
    "{\"status\":{\"nodes\":[{\"first_rank\":8,\"workers\":2},{\"first_rank\":0,\"workers\":2}],"  \
    "\"failed\":[{\"rank\":8},{\"rank\":1},{\"rank\":1}]}}"

static void malformed_samples_are_refused_or_bounded(void **state)
{
    static const char *const bad[] = {"", "[]", "{}", "{\"status\":7}", "{\"status\":{}"};
    static const char *const odd[] = {
        "{\"status\":{}}",
        "{\"status\":{\"nodes\":[{}, 7, {\"first_rank\":0,\"workers\":-3}]}}",
        "{\"status\":{\"nodes\":[{\"first_rank\":-5,\"workers\":99999999}],\"failed\":[{},7]}}",
        "{\"status\":{\"nodes\":[{\"first_rank\":2000000000,\"workers\":4096}]}}",
        OUT_OF_ORDER,
    };
    struct dd_err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        DD_AUTO(top_job) struct top_job j = {0};
        assert_true(top_job_read(&j, bad[i], strlen(bad[i]), &err) < 0);
    }
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct screen *s = screen_new(odd[i], 24, 80);
        screen_draw(s);
        assert_true(s->job.n <= 4);
        screen_free(s);
    }
}

/* ---- keys ---- */

static void bytes_become_keys(void **state)
{
    static const struct {
        const char *bytes;
        enum top_key keys[4];
        int n;
    } rows[] = {
        {"q", {TOP_KEY_QUIT}, 1},
        {"jk", {TOP_KEY_DOWN, TOP_KEY_UP}, 2},
        {"\033[A\033OB", {TOP_KEY_UP, TOP_KEY_DOWN}, 2},
        {"\033[5~\033[6~", {TOP_KEY_PAGE_UP, TOP_KEY_PAGE_DOWN}, 2},
        {"\033[1;5Aq", {TOP_KEY_NONE, TOP_KEY_QUIT}, 2},
        {"\033[\033[B", {TOP_KEY_DOWN}, 1},
        {"\033xs", {TOP_KEY_NONE, TOP_KEY_STACKS}, 2},
        {"\033[0000000000000000q", {TOP_KEY_NONE}, 1},
        {"\033", {TOP_KEY_NONE}, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct top_keys k = {0};
        enum top_key got;
        int n = 0;
        for (const char *b = rows[i].bytes; *b != '\0'; b++)
            if (top_keys_take(&k, (unsigned char)*b, &got) && n < rows[i].n) {
                assert_int_equal(got, rows[i].keys[n]);
                n++;
            }
        assert_int_equal(n, rows[i].n);
    }
}

static void an_escape_alone_is_a_key(void **state)
{
    struct top_keys k = {0};
    enum top_key got;
    (void)state;
    assert_false(top_keys_flush(&k, &got));
    assert_false(top_keys_take(&k, '\033', &got));
    assert_true(top_keys_flush(&k, &got));
    assert_int_equal(got, TOP_KEY_BACK);
    assert_true(top_keys_take(&k, 'q', &got));
    assert_int_equal(got, TOP_KEY_QUIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_fits_into_columns_and_controls_are_neutralised),
        cmocka_unit_test(the_locale_decides_about_utf8),
        cmocka_unit_test(the_screen_of_80x24_shows_job_nodes_and_ranks),
        cmocka_unit_test(usage_and_the_last_line_have_columns),
        cmocka_unit_test(gpus_have_a_column_if_the_terminal_is_wide_enough),
        cmocka_unit_test(the_json_lists_the_gpus_of_each_worker),
        cmocka_unit_test(the_json_has_what_the_screen_shows),
        cmocka_unit_test(steps_have_columns_if_ranks_mark_them),
        cmocka_unit_test(a_page_that_shows_its_end_follows_it),
        cmocka_unit_test(columns_without_values_are_left_out),
        cmocka_unit_test(a_notice_replaces_the_first_failure),
        cmocka_unit_test(stragglers_are_shown_where_nothing_has_failed),
        cmocka_unit_test(hostile_texts_do_not_reach_the_terminal),
        cmocka_unit_test(a_thousand_ranks_scroll),
        cmocka_unit_test(text_is_wrapped_and_scrolls),
        cmocka_unit_test(a_tiny_terminal_says_so),
        cmocka_unit_test(malformed_samples_are_refused_or_bounded),
        cmocka_unit_test(bytes_become_keys),
        cmocka_unit_test(an_escape_alone_is_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
