/* worker/lines and worker/ranks: lines, tails, and maps of ranks. */
#include "base/auto.h"
#include "worker/lines.h"
#include "worker/ranks.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* --- lines --- */

struct lines_row {
    const char *in;
    const char *want; /* pieces: '<' with label, '-' without, then the text; '|': added newline */
};

static const struct lines_row lines_rows[] = {
    {"", ""},
    {"a", "<a|"},
    {"a\n", "<a\n"},
    {"\n", "<\n"},
    {"a\nb", "<a\n<b|"},
    {"a\r\nb\r\n", "<a\r\n<b\r\n"},
    {"\r 10%\r 20%\rdone\n", "-\r< 10%\r< 20%\r<done\n"},
    {" 10%\r", "< 10%\r"},
    {"a\r\r\n", "<a\r<\r\n"},
    {"\r\r", "-\r-\r"},
    {"a\n\nb\n", "<a\n<\n<b\n"},
};

static void put_piece(struct dd_buf *out, const unsigned char *p, const struct line_piece *piece)
{
    (void)dd_buf_puts(out, piece->bare ? "-" : "<");
    (void)dd_buf_append(out, p, piece->len);
    if (piece->cut)
        (void)dd_buf_puts(out, "|");
}

/* Feed `step` bytes at a time, as from a stream. */
static void feed(struct dd_buf *out, const char *in, size_t n, size_t step)
{
    struct lines l = {0};
    struct line_piece piece;
    size_t head = 0;
    for (size_t have = 0; have < n;) {
        have = have + step < n ? have + step : n;
        while (lines_next(&l, (const unsigned char *)in + head, have - head, false, &piece)) {
            put_piece(out, (const unsigned char *)in + head, &piece);
            head += piece.len;
        }
    }
    while (lines_next(&l, (const unsigned char *)in + head, n - head, true, &piece)) {
        put_piece(out, (const unsigned char *)in + head, &piece);
        head += piece.len;
    }
    assert_int_equal(head, n);
}

static void lines_cuts_at_newlines_and_carriage_returns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(lines_rows) / sizeof(lines_rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
        feed(&out, lines_rows[i].in, strlen(lines_rows[i].in), SIZE_MAX / 2);
        assert_string_equal(dd_buf_str(&out), lines_rows[i].want);
    }
}

/* Byte by byte, a \r is written before the \n behind it is known; the \n then has no label, and the
 * visible result is the same. */
static void lines_shows_the_same_when_fed_byte_by_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(lines_rows) / sizeof(lines_rows[0]); i++) {
        char want[100] = "", *w = want;
        for (const char *p = lines_rows[i].want; *p != '\0'; p++) {
            *w++ = *p;
            if (*p == '\r' && p[1] == '\n')
                *w++ = '-';
        }
        *w = '\0';
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
        feed(&out, lines_rows[i].in, strlen(lines_rows[i].in), 1);
        if (strcmp(lines_rows[i].in, "a\r\r\n") == 0)
            assert_string_equal(dd_buf_str(&out), "<a\r-\r-\n");
        else
            assert_string_equal(dd_buf_str(&out), want);
    }
}

static void lines_cuts_what_never_ends(void **state)
{
    (void)state;
    size_t n = (size_t)2 * LINES_MAX + 5;
    DD_AUTO(free) char *in = malloc(n);
    assert_non_null(in);
    memset(in, 'x', n);
    static const size_t steps[] = {1000, 65536, SIZE_MAX / 2};
    for (size_t i = 0; i < 3; i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(n + 100);
        feed(&out, in, n, steps[i]);
        assert_int_equal(out.len, n + 6); /* three pieces: '<' and '|' each */
        assert_memory_equal(out.data + LINES_MAX + 1, "|<", 2);
    }
}

static void tail_keeps_the_last_lines(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"", ""},
        {"a", "a\n"},
        {"a\nb\n", "a\nb\n"},
        {"\n", "\n"},
        {"a\r\nb\r\n", "a\nb\n"},
        {" 1%\r 2%\r 3%\nend", " 3%\nend\n"},
        {" 1%\r 2%\r", " 2%\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t step = 1; step < 100; step += 98) {
            struct tail t = {0};
            DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * TAIL_BYTES);
            size_t n = strlen(rows[i].in);
            for (size_t at = 0; at < n; at += step)
                tail_add(&t, (const unsigned char *)rows[i].in + at, n - at < step ? n - at : step);
            assert_int_equal(tail_format(&t, &out), 0);
            assert_string_equal(dd_buf_str(&out), rows[i].want);
            tail_done(&t);
        }
}

static void tail_has_a_limit_of_lines(void **state)
{
    (void)state;
    struct tail t = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * TAIL_BYTES), want = DD_BUF_INIT(TAIL_BYTES);
    for (int i = 0; i < TAIL_LINES + 2; i++) {
        char line[16];
        int n = snprintf(line, sizeof(line), "%d\n", i);
        tail_add(&t, (unsigned char *)line, (size_t)n);
        if (i >= 2)
            assert_int_equal(dd_buf_append(&want, line, (size_t)n), 0);
    }
    assert_int_equal(tail_format(&t, &out), 0);
    assert_string_equal(dd_buf_str(&out), dd_buf_str(&want));
    tail_done(&t);
}

static void tail_is_bounded(void **state)
{
    (void)state;
    struct tail t = {0};
    char line[1001];
    memset(line, 'y', sizeof(line));
    for (int i = 0; i < 100; i++) {
        line[1000] = i % 10 == 9 ? '\n' : 'y';
        tail_add(&t, (unsigned char *)line, sizeof(line));
    }
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * TAIL_BYTES);
    assert_int_equal(tail_format(&t, &out), 0);
    assert_true(out.len > 10000 && out.len <= TAIL_BYTES + 1);
    assert_true(t.bytes.cap <= 2 * TAIL_BYTES + 1);
    tail_done(&t);
}

/* --- options --- */

static void ranks_refuses_what_is_no_map(void **state)
{
    (void)state;
    static const char *const rows[] = {"4",       "5",     "-1",    "x",       "0:",
                                       ":1",      "0:4",   "0:1,",  ",0:1",    "0:1,,1:1",
                                       "0",       "0:1:2", "0-3:1", "0:1 1:2", "1,2",
                                       "70000:1", "0x1:1", " 3",    "3 ",      "99999999999999:1"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rank_map m = {0};
        struct dd_err err = {0};
        if (strcmp(rows[i], "0") == 0)
            continue; /* valid for --tee */
        assert_int_equal(rank_map_parse(&m, rows[i], "--tee", &err), -EINVAL);
        assert_non_null(strstr(err.text, "--tee: "));
        assert_non_null(strstr(err.text, "0:3,1:2"));
    }
    static const char *const lists[] = {"x", ",", "0,", "0,,1", "-1", "0:1", "0 1", "99999999999"};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct rank_map m = {0};
        struct dd_err err = {0};
        assert_int_equal(rank_list_parse(&m, lists[i], "--local-ranks-filter", &err), -EINVAL);
        assert_non_null(strstr(err.text, "--local-ranks-filter: "));
    }
}

static void ranks_reads_maps_and_lists(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int r0, r1, r12;
        bool any;
    } rows[] = {
        {NULL, 0, 0, 0, false},  {"", 0, 0, 0, false},       {"0", 0, 0, 0, false},
        {"3", 3, 3, 3, true},    {"0:1", 1, 0, 0, true},     {"12:2,0:1", 1, 0, 2, true},
        {"0:0", 0, 0, 0, false}, {"1:1,1:2", 0, 2, 0, true}, {"0:3,1:3,12:3", 3, 3, 3, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rank_map m = {0};
        assert_int_equal(rank_map_parse(&m, rows[i].text, "--tee", NULL), 0);
        assert_int_equal(rank_map_get(&m, 0), rows[i].r0);
        assert_int_equal(rank_map_get(&m, 1), rows[i].r1);
        assert_int_equal(rank_map_get(&m, 12), rows[i].r12);
        assert_int_equal(rank_map_any(&m), rows[i].any);
        rank_map_done(&m);
    }
    struct rank_map m = {0};
    assert_int_equal(rank_list_parse(&m, "0, 12", "--local-ranks-filter", NULL), 0);
    assert_int_equal(rank_map_get(&m, 0), 1);
    assert_int_equal(rank_map_get(&m, 1), 0);
    assert_int_equal(rank_map_get(&m, 12), 1);
    rank_map_done(&m);
    assert_int_equal(rank_list_parse(&m, "", "--local-ranks-filter", NULL), 0);
    assert_int_equal(rank_map_get(&m, 5), 1);
}

static void lines_whole_ends_at_the_last_end_of_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *in;
        size_t want;
    } rows[] = {{"", 0},        {"a", 0},     {"a\n", 2},         {"a\nb", 2},
                {"a\n\r b", 3}, {"\r 5%", 1}, {"a\r\nb\rc\nd", 7}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(lines_whole((const unsigned char *)rows[i].in, strlen(rows[i].in)),
                         rows[i].want);
}

static void tail_may_keep_less(void **state)
{
    (void)state;
    struct tail t = {.most = 8};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(100);
    for (int i = 0; i < 1000; i++)
        tail_add(&t, (const unsigned char *)"line\n", 5);
    assert_int_equal(tail_format(&t, &out), 0);
    assert_true(t.bytes.cap <= 17 && out.len >= 8 && out.len <= 17);
    tail_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_cuts_at_newlines_and_carriage_returns),
        cmocka_unit_test(lines_shows_the_same_when_fed_byte_by_byte),
        cmocka_unit_test(lines_cuts_what_never_ends),
        cmocka_unit_test(tail_keeps_the_last_lines),
        cmocka_unit_test(tail_has_a_limit_of_lines),
        cmocka_unit_test(tail_is_bounded),
        cmocka_unit_test(ranks_refuses_what_is_no_map),
        cmocka_unit_test(ranks_reads_maps_and_lists),
        cmocka_unit_test(lines_whole_ends_at_the_last_end_of_a_line),
        cmocka_unit_test(tail_may_keep_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
