/* worker/step_lines and rdzv/progress: the steps in a program's output, and restarts without a new
 * one. */
#include "rdzv/progress.h"
#include "worker/step_lines.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct step_lines *make(const char *regex)
{
    struct step_lines *s = NULL;
    assert_int_equal(step_lines_new(&s, regex, NULL), 0);
    step_lines_begin(s);
    return s;
}

static void steps_are_found_in_lines(void **state)
{
    static const struct {
        const char *regex, *text;
        int64_t step;
    } rows[] = {
        {"step ([0-9]+)", "step 1\nstep 2\n", 2},
        {"step ([0-9]+)", "step 7\nstep 3\n", 7},
        {"step ([0-9]+)", "step 1\rstep 2\r\n\nno\n", 2},
        {"step ([0-9]+)", "loss 3\n", -1},
        {"step ([0-9]+)", "step 12", 12}, /* without a line end */
        {"step ([0-9]+)", "", -1},
        {"^step ([0-9]+)$", "xstep 4\nstep 5 x\n", -1},
        {"(step|iter) ([0-9]+)", "iter 8\n", 8},
        {"step (-?[0-9]+)", "step -3\n", -1},
        {"step ([0-9.]+)", "step 3.5\n", -1},
        {"step ([0-9]+)", "step 99999999999999999999999999\n", -1},
        {"step ([0-9]+)", "step 9223372036854775807\n", INT64_MAX},
        {"(x)*step ([0-9]+)", "step 4\n", 4}, /* the first group matches nothing */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct step_lines *s = make(rows[i].regex);
        for (const char *at = rows[i].text; *at != '\0'; at++) /* byte by byte */
            step_lines_feed(s, 0, at, 1);
        step_lines_end(s);
        if (step_lines_highest(s) != rows[i].step)
            fail_msg("row %zu: %lld", i, (long long)step_lines_highest(s));
        step_lines_begin(s);
        step_lines_feed(s, 1, rows[i].text, strlen(rows[i].text));
        step_lines_end(s);
        assert_int_equal(step_lines_highest(s), rows[i].step);
        step_lines_free(s);
    }
}

static void lines_of_two_streams_do_not_mix(void **state)
{
    struct step_lines *s = make("step ([0-9]+)");
    (void)state;
    step_lines_feed(s, 0, "step 1", 6);
    step_lines_feed(s, 1, "step 2", 6);
    step_lines_feed(s, 0, "0\n", 2);
    assert_int_equal(step_lines_highest(s), 10);
    step_lines_begin(s); /* forgets the open line */
    step_lines_feed(s, 1, "5\n", 2);
    assert_int_equal(step_lines_highest(s), -1);
    step_lines_free(s);
}

/* Only the beginning of a long line is searched, and bytes of any value are taken. */
static void long_and_binary_lines_are_bounded(void **state)
{
    struct step_lines *s = make("step ([0-9]+)");
    static char text[3 * STEP_LINE_MAX];
    (void)state;
    memset(text, 0, sizeof(text));
    memcpy(text + 100, "step 5", 6);
    memcpy(text + 2 * STEP_LINE_MAX, "step 6", 6);
    step_lines_feed(s, 0, text, sizeof(text));
    step_lines_feed(s, 0, "\nstep 3\xff\n", 9);
    assert_int_equal(step_lines_highest(s), 5);
    step_lines_free(s);
}

static void invalid_expressions_are_refused(void **state)
{
    char longest[STEP_REGEX_MAX + 2];
    const char *const rows[] = {"step [0-9]+", "", "step ([0-9]+", "([", "(a{2,1})", longest};
    (void)state;
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct step_lines *s = NULL;
        struct dd_err err = {.text = ""};
        assert_int_equal(step_lines_new(&s, rows[i], &err), -EINVAL);
        assert_non_null(strstr(err.text, "regular expression"));
    }
}

static void count(void *arg)
{
    ++*(int *)arg;
}

static void each_higher_step_is_announced_once(void **state)
{
    struct step_lines *s = make("([0-9]+)");
    int n = 0;
    (void)state;
    step_lines_on_step(s, count, &n);
    step_lines_feed(s, 0, "1\n1\n2\n1\n", 8);
    assert_int_equal(n, 2);
    step_lines_free(s);
}

/* ---- rdzv/progress ---- */

static void one_wrong_step_does_not_count_for_ever(void **state)
{
    static const struct {
        int64_t steps[8]; /* ends with -2 */
        int64_t highest;
    } rows[] = {
        {{-2}, -1},
        {{1, 2, 3, -2}, 3},
        {{-1, -2}, -1},
        {{100, 7000000000000, 101, -2}, 101}, /* the wrong one is forgotten */
        {{100, 7000000000000, -2}, 100},
        {{100, 7000000000000, 101, 7000000000000, -2}, 101},
        {{100, 2000000, 2000001, -2}, 2000001}, /* it is confirmed */
        {{5000000, -2}, 5000000},               /* there is no other */
        {{5000000, 5000001, -2}, 5000001},
        {{7000000000000, 1, 2, -2}, 2}, /* the first one is wrong */
        {{0, 50000, 1000000, -2}, 1000000},
        {{2000, 1999999, -2}, 1999999}, /* no thousandfold */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct step_max m = STEP_MAX_NONE;
        for (int k = 0; rows[i].steps[k] != -2; k++)
            (void)step_max_take(&m, rows[i].steps[k]);
        if (step_max_get(&m) != rows[i].highest)
            fail_msg("row %zu: %lld", i, (long long)step_max_get(&m));
    }
}

static void restarts_without_a_new_step_are_counted(void **state)
{
    static const struct {
        int64_t steps[8]; /* of failed rounds; ends with -2 */
        int stuck;        /* after the last one */
    } rows[] = {
        {{-1, -2}, 0}, /* the first round is no restart */
        {{-1, -1, -1, -1, -2}, 3},
        {{100, 100, 90, -1, -2}, 3}, /* not even the step before */
        {{100, 100, 101, -2}, 0},
        {{100, 90, 95, 99, -2}, 3}, /* each below the highest one */
        {{100, 100, 101, 101, -2}, 1},
        {{100, 7000000000000, 150, 200, -2}, 0}, /* a wrong one is no standard */
        {{5000000, 5000000, 5000000, -2}, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct progress p = PROGRESS_NONE;
        int stuck = 0;
        for (int k = 0; rows[i].steps[k] != -2; k++)
            stuck = progress_round_over(&p, rows[i].steps[k]);
        if (stuck != rows[i].stuck)
            fail_msg("row %zu: %d", i, stuck);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_found_in_lines),
        cmocka_unit_test(lines_of_two_streams_do_not_mix),
        cmocka_unit_test(long_and_binary_lines_are_bounded),
        cmocka_unit_test(invalid_expressions_are_refused),
        cmocka_unit_test(each_higher_step_is_announced_once),
        cmocka_unit_test(one_wrong_step_does_not_count_for_ever),
        cmocka_unit_test(restarts_without_a_new_step_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
