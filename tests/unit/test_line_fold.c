/* worker: folding of equal lines, the order for each worker, and bounded memory. */
#include "worker/line_fold.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS UINT64_C(1000000)
enum { WINDOW = 200, WORKERS = 8 };

static struct line_fold *fresh(int n)
{
    static const int ranks[WORKERS] = {8, 9, 10, 11, 12, 13, 14, 15};
    struct line_fold *f = NULL;
    assert_int_equal(line_fold_new(&f, ranks, n, WINDOW * MS), 0);
    return f;
}

static void add(struct line_fold *f, int i, const char *line, uint64_t now_ms)
{
    assert_int_equal(line_fold_add(f, i, line, strlen(line), now_ms * MS), 0);
}

/* Take what is due at that time. */
static void takes(struct line_fold *f, uint64_t now_ms, bool all, const char *expected)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    int rc;
    while ((rc = line_fold_take(f, now_ms * MS, all, &out)) > 0)
        ;
    assert_int_equal(rc, 0);
    assert_string_equal(dd_buf_str(&out), expected);
}

static void lines_of_all_workers_are_due_at_once(void **state)
{
    (void)state;
    struct line_fold *f = fresh(4);
    for (int i = 3; i >= 0; i--) {
        assert_true(i == 3 || line_fold_due(f) == 1200 * MS);
        add(f, i, "loading", 1000);
    }
    assert_int_equal(line_fold_due(f), 1);
    takes(f, 1000, false, "[8-11] loading\n");
    assert_true(line_fold_empty(f) && line_fold_due(f) == 0);
    line_fold_free(f);
}

static void others_wait_for_the_window(void **state)
{
    (void)state;
    struct line_fold *f = fresh(4);
    add(f, 0, "a", 1000);
    add(f, 2, "a", 1100);
    add(f, 3, "a", 1199);
    takes(f, 1199, false, "");
    takes(f, 1200, false, "[8,10-11] a\n");
    add(f, 1, "a", 1200);
    takes(f, 1200, true, "[9] a\n");
    line_fold_free(f);
}

static void numbers_become_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *lines[3], *folded;
    } rows[] = {
        {{"loss 2.31", "loss 2.30", "loss 2.34"}, "[8-10] loss 2.30…2.34\n"},
        {{"loss 10.0", "loss 9.5", "loss 1e1"}, "[8-10] loss 9.5…10.0\n"},
        {{"x=-1 y=2", "x=-3 y=2", "x=4 y=2"}, "[8-10] x=-3…4 y=2\n"},
        {{"step 7", "step 7", "step 7"}, "[8-10] step 7\n"},
        {{"lr 1e-05", "lr 1e-04", "lr 0.5"}, "[8-10] lr 1e-05…0.5\n"},
        {{"cuda:0 2026-11-23", "cuda:1 2026-11-23", "cuda:2 2026-11-24"},
         "[8-10] cuda:0…2 2026-11-23…24\n"},
        {{"loss nan", "loss 1", "loss 2"}, "[8] loss nan\n[9-10] loss 1…2\n"},
        {{"rank8", "rank9", "rank 9"}, "[8-9] rank8…9\n[10] rank 9\n"},
        {{"", "", ""}, "[8-10] \n"},
        {{"1", "1.", "1e"}, "[8] 1\n[9] 1.\n[10] 1e\n"},
        {{"10000000000000000000001", "10000000000000000000002", "1"},
         "[8-10] 1…10000000000000000000002\n"},
        {{"0x7f1a", "0x7f2a", "0x7f1b"}, "[8-9] 0x7f1…2a\n[10] 0x7f1b\n"},
        {{"1-2", "1-3", "1 -3"}, "[8-9] 1-2…3\n[10] 1 -3\n"},
        {{"11111111111111111111111111111111111", "11111111111111111111111111111111112", "1"},
         "[8] 11111111111111111111111111111111111\n[9] 11111111111111111111111111111111112\n[10] 1\n"},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        struct line_fold *f = fresh(4);
        for (int i = 0; i < 3; i++)
            add(f, i, rows[r].lines[i], 1000);
        takes(f, 1000, true, rows[r].folded);
        line_fold_free(f);
    }
}

static void lines_of_a_worker_stay_in_order(void **state)
{
    (void)state;
    struct line_fold *f = fresh(2);
    add(f, 0, "a", 1000);
    add(f, 0, "b", 1000);
    add(f, 0, "a", 1000);
    add(f, 1, "b", 1100); /* joins the first b; so its a must not join the first a */
    add(f, 1, "a", 1100);
    add(f, 1, "a", 1100);
    takes(f, 1100, true, "[8] a\n[8-9] b\n[8-9] a\n[9] a\n");
    line_fold_free(f);
}

static void a_later_line_does_not_overtake(void **state)
{
    (void)state;
    struct line_fold *f = fresh(2);
    add(f, 0, "first", 1000);
    add(f, 0, "both", 1000);
    add(f, 1, "both", 1000); /* complete, but behind "first" */
    takes(f, 1199, false, "");
    takes(f, 1200, false, "[8] first\n[8-9] both\n");
    line_fold_free(f);
}

static void memory_is_bounded(void **state)
{
    (void)state;
    struct line_fold *f = fresh(8);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 22);
    char line[LINE_FOLD_LINE + 1];
    for (int i = 0; i < 3 * LINE_FOLD_GROUPS; i++) {
        memset(line, 'x', sizeof(line));
        for (int k = 0; k < 12; k++)
            line[k] = (char)('a' + (i >> k) % 2);
        while (line_fold_due(f) == 1)
            assert_int_equal(line_fold_take(f, 1000 * MS, false, &out), 1);
        assert_int_equal(line_fold_add(f, i % 8, line, i % 2 == 0 ? 20 : LINE_FOLD_LINE, 1000 * MS),
                         0);
        dd_buf_clear(&out);
    }
    for (int i = 0; !line_fold_empty(f); i++) {
        assert_true(i < LINE_FOLD_GROUPS);
        assert_int_equal(line_fold_take(f, 0, true, &out), 1);
    }
    assert_true(out.len < LINE_FOLD_MAX + (LINE_FOLD_MAX >> 1));
    line_fold_free(f);
}

static void long_lines_are_passed_on(void **state)
{
    (void)state;
    struct line_fold *f = fresh(2);
    char line[LINE_FOLD_LINE + 2];
    memset(line, '1', sizeof(line));
    line[LINE_FOLD_LINE + 1] = '\0';
    add(f, 0, line, 1000);
    add(f, 1, line, 1000);
    assert_int_equal(line_fold_due(f), 1);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    assert_int_equal(line_fold_take(f, 1000 * MS, false, &out), 1);
    assert_int_equal(out.len, strlen("[8] ") + LINE_FOLD_LINE + 1 + 1);
    line_fold_clear(f);
    assert_true(line_fold_empty(f));
    line_fold_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_all_workers_are_due_at_once),
        cmocka_unit_test(others_wait_for_the_window),
        cmocka_unit_test(numbers_become_ranges),
        cmocka_unit_test(lines_of_a_worker_stay_in_order),
        cmocka_unit_test(a_later_line_does_not_overtake),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(long_lines_are_passed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
