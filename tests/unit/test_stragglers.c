/* base/step_page and rdzv/stragglers: the times of steps, and the ranks that hold up the others. */
#include "base/auto.h"
#include "rdzv/stragglers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define MS UINT64_C(1000000)

/* ---- the page ---- */

struct worker {
    struct step_page page;
    struct step_clock clock;
    uint64_t now, cpu;
};

/* A step of `work` and then `wait` ms; mark: the program marks the wait. */
static void run_step(struct worker *w, int64_t step, uint64_t work, uint64_t wait, bool mark)
{
    step_page_begin(&w->page, &w->clock, step, w->now, w->cpu);
    w->now += work * MS;
    w->cpu += work * MS;
    if (mark)
        step_clock_wait(&w->clock, w->now);
    w->now += wait * MS;
}

static void a_step_counts_once_the_next_one_begins(void **state)
{
    struct worker w = {.now = 5};
    struct step_times t;
    (void)state;
    assert_false(step_page_read(&w.page, sizeof(w.page), &t));
    run_step(&w, 7, 20, 30, true);
    assert_false(step_page_read(&w.page, sizeof(w.page), &t));
    run_step(&w, 8, 20, 30, true);
    assert_true(step_page_read(&w.page, sizeof(w.page), &t));
    assert_int_equal(t.step, 8);
    assert_int_equal(t.count, 1);
    assert_int_equal(t.wall_us, 50000);
    assert_int_equal(t.work_us, 20000);
    assert_int_equal(t.cpu_us, 20000);
}

static void times_are_medians_of_the_last_steps(void **state)
{
    struct worker w = {.now = 5};
    struct step_times t;
    (void)state;
    for (int i = 0; i < 100; i++) /* every 10th step writes a checkpoint */
        run_step(&w, i, i < 80 ? 1 : i % 10 == 0 ? 900 : 20, 30, true);
    assert_true(step_page_read(&w.page, sizeof(w.page), &t));
    assert_int_equal(t.n, STEP_WINDOW);
    assert_int_equal(t.work_us, 20000);
    assert_int_equal(t.wall_us, 50000);
}

static void waits_are_counted_only_where_they_are_marked(void **state)
{
    struct worker w = {.now = 5};
    struct worker several = {.now = 5};
    struct step_times t;
    (void)state;
    for (int i = 0; i < 20; i++)
        run_step(&w, i, 20, 30, false);
    assert_true(step_page_read(&w.page, sizeof(w.page), &t));
    assert_int_equal(t.work_us, 0);
    for (int i = 0; i < 20; i++) {
        run_step(&several, i, 10, 5, true);
        step_clock_wait(&several.clock, several.now); /* it waits already */
        several.now += 5 * MS;
        step_clock_resume(&several.clock, several.now);
        step_clock_resume(&several.clock, several.now);
        several.now += 7 * MS;
        step_clock_wait(&several.clock, several.now);
        several.now += 3 * MS;
    }
    assert_true(step_page_read(&several.page, sizeof(several.page), &t));
    assert_int_equal(t.wall_us, 30000);
    assert_int_equal(t.work_us, 17000);
}

static void a_page_of_any_bytes_gives_bounded_times(void **state)
{
    struct worker w = {.now = 5};
    struct step_times t;
    (void)state;
    run_step(&w, 1, 1, 1, true);
    w.now -= 2 * MS; /* a clock that goes back */
    run_step(&w, 2, 1, 1, true);
    assert_true(step_page_read(&w.page, sizeof(w.page), &t));
    assert_int_equal(t.wall_us, 0);
    assert_false(step_page_read(&w.page, sizeof(w.page) - 1, &t));
    for (int i = 0; i < STEP_WINDOW; i++)
        w.page.v[i] = (struct step_entry){UINT64_MAX, UINT64_MAX, UINT64_MAX};
    w.page.count = UINT64_MAX;
    w.page.step = INT64_MIN;
    assert_true(step_page_read(&w.page, sizeof(w.page), &t));
    assert_true(t.wall_us == STEP_US_MAX && t.cpu_us == STEP_US_MAX && t.work_us == STEP_US_MAX);
    assert_int_equal(t.step, -1);
    assert_int_equal(t.count, INT64_MAX);
    w.page.magic++;
    assert_false(step_page_read(&w.page, sizeof(w.page), &t));
}

/* ---- comparison ---- */

enum { RANKS = 8, EACH = 2 }; /* ranks; of each node */

struct job {
    struct stragglers *s;
    uint64_t count;
    uint64_t work[RANKS], cpu[RANKS]; /* us; work 0: not marked */
    int began, over;                  /* events */
    struct straggler last;
};

static struct job even(void)
{
    struct job j = {0};
    assert_int_equal(stragglers_new(&j.s, RANKS), 0);
    for (int node = 0; node < RANKS / EACH; node++)
        stragglers_place(j.s, node * EACH, EACH, node);
    for (int i = 0; i < RANKS; i++) {
        j.work[i] = 20000;
        j.cpu[i] = 15000;
    }
    return j;
}

/* All ranks report `steps` further steps; a step of each is as long as that of the slowest. */
static void report(struct job *j, unsigned steps)
{
    uint64_t wall = 0;
    struct straggler g;
    for (int i = 0; i < RANKS; i++) {
        const uint64_t us = j->work[i] > 0 ? j->work[i] : j->cpu[i];
        wall = us > wall ? us : wall;
    }
    j->count += steps;
    for (int i = 0; i < RANKS; i++)
        stragglers_take(j->s, i,
                        &(struct step_times){.step = (int64_t)j->count,
                                             .count = j->count,
                                             .n = STEP_WINDOW,
                                             .wall_us = wall + 1000,
                                             .cpu_us = j->cpu[i],
                                             .work_us = j->work[i]});
    stragglers_judge(j->s);
    while (stragglers_next(j->s, &g)) {
        j->last = g;
        j->began += g.slow;
        j->over += !g.slow;
    }
}

static void reports(struct job *j, int n, unsigned steps)
{
    for (int i = 0; i < n; i++)
        report(j, steps);
}

static void the_last_times_of_each_rank_are_kept(void **state)
{
    struct stragglers *s;
    struct step_times t;
    int rank = 0;
    (void)state;
    assert_int_equal(stragglers_new(&s, 4), 0);
    assert_false(stragglers_times(s, &rank, &t));
    stragglers_take(s, 3, &(struct step_times){.step = 9, .count = 1, .wall_us = 70});
    stragglers_take(s, 1, &(struct step_times){.step = 4, .count = 4, .wall_us = 50});
    stragglers_take(s, 1, &(struct step_times){.step = 5, .count = 5, .wall_us = 60});
    assert_true(stragglers_times(s, &rank, &t));
    assert_true(rank == 1 && t.step == 5 && t.wall_us == 60);
    rank++;
    assert_true(stragglers_times(s, &rank, &t));
    assert_true(rank == 3 && t.step == 9 && t.wall_us == 70);
    rank++;
    assert_false(stragglers_times(s, &rank, &t));
    stragglers_free(s);
}

static void an_even_job_has_no_straggler(void **state)
{
    struct job j = even();
    (void)state;
    for (unsigned k = 0; k < 5000; k++) {
        for (unsigned i = 0; i < RANKS; i++) /* some noise, and every third report a slow rank */
            j.work[i] = 20000 + (k * 7919 + i * 104729) % 15000 +
                        (i == k % RANKS && k % 3 == 0 ? 300000 : 0);
        report(&j, 1 + k % 40);
    }
    assert_int_equal(j.began, 0);
    stragglers_free(j.s);
}

static void one_slow_rank_is_one_event_and_another_one_when_it_is_over(void **state)
{
    struct job j = even();
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    struct steps_view v;
    (void)state;
    reports(&j, 5, 10);
    j.work[5] = 200000;
    reports(&j, 2, 10);
    assert_int_equal(j.began, 0);
    reports(&j, 30, 10);
    assert_int_equal(j.began, 1);
    assert_int_equal(j.last.rank, 5);
    assert_int_equal(j.last.node, 2);
    assert_int_equal(straggler_text(&j.last, "node3", &text), 0);
    assert_string_equal(dd_buf_str(&text),
                        "rank 5 on node3 takes 10x the median time per step, waits not counted "
                        "(0.2 s, median 0.02 s)");
    assert_true(stragglers_from(j.s, 0, &j.last) && j.last.rank == 5);
    assert_false(stragglers_from(j.s, 6, &j.last));
    stragglers_view(j.s, &v);
    assert_int_equal(v.ranks, RANKS);
    assert_int_equal(v.step, (int64_t)j.count);
    assert_int_equal(v.median_us, 20000);
    j.work[5] = 35000; /* between the limits: it stays one */
    reports(&j, 30, 10);
    assert_int_equal(j.over, 0);
    j.work[5] = 25000;
    reports(&j, 30, 10);
    assert_true(j.began == 1 && j.over == 1 && j.last.rank == 5);
    stragglers_free(j.s);
}

static void a_slow_node_is_one_event(void **state)
{
    struct job j = even();
    (void)state;
    reports(&j, 5, 10);
    j.work[2] = 190000;
    j.work[3] = 200000;
    reports(&j, 30, 10);
    assert_true(j.began == 1 && j.last.rank == 3 && j.last.node == 1);
    j.work[3] = 20000;
    reports(&j, 30, 10);
    assert_int_equal(j.over, 0); /* rank 2 is still slow */
    j.work[2] = 20000;
    reports(&j, 30, 10);
    assert_int_equal(j.over, 1);
    stragglers_free(j.s);
}

static void half_of_the_ranks_may_be_slow_but_no_more(void **state)
{
    struct job j = even();
    (void)state;
    for (int i = 4; i < 8; i++)
        j.work[i] = 200000;
    reports(&j, 30, 10);
    assert_int_equal(j.began, 2);
    stragglers_free(j.s);
    j = even();
    for (int i = 3; i < 8; i++)
        j.work[i] = 200000;
    reports(&j, 30, 10);
    assert_int_equal(j.began, 0);
    stragglers_free(j.s);
}

static void few_steps_and_old_reports_name_nobody(void **state)
{
    struct job j = even();
    (void)state;
    j.work[5] = 200000;
    report(&j, 7); /* too few to compare */
    report(&j, 8);
    reports(&j, 100, 0); /* nothing new */
    assert_int_equal(j.began, 0);
    reports(&j, 7, 1);
    assert_int_equal(j.began, 0);
    reports(&j, 1, 1);
    assert_int_equal(j.began, 1);
    stragglers_free(j.s);
}

static void a_difference_that_costs_the_job_nothing_names_nobody(void **state)
{
    struct job j = even();
    struct straggler g;
    (void)state;
    for (int i = 0; i < RANKS; i++)
        j.work[i] = i == 5 ? 900 : 100; /* under a millisecond */
    reports(&j, 30, 10);
    for (int k = 0; k < 30; k++) { /* a tenth of the step, the rest is communication */
        j.count += 10;
        for (int i = 0; i < RANKS; i++)
            stragglers_take(j.s, i,
                            &(struct step_times){.count = j.count,
                                                 .n = STEP_WINDOW,
                                                 .wall_us = 100000,
                                                 .work_us = i == 5 ? 11000 : 1000});
        stragglers_judge(j.s);
        assert_false(stragglers_next(j.s, &g));
    }
    assert_int_equal(j.began, 0);
    stragglers_free(j.s);
}

static void without_marks_of_waits_processor_times_are_compared(void **state)
{
    struct job j = even();
    (void)state;
    j.work[0] = 0; /* one rank marks none */
    j.cpu[5] = 160000;
    reports(&j, 30, 10);
    assert_true(j.began == 1 && j.last.rank == 5 && j.last.by == STRAGGLER_BY_CPU);
    j.cpu[5] = 15000;
    reports(&j, 30, 10);
    j.work[6] = 200000; /* it sleeps: its processor time tells nothing */
    reports(&j, 30, 10);
    assert_true(j.began == 1 && j.over == 1);
    stragglers_free(j.s);
}

/* ---- text ---- */

static void times_that_are_not_as_the_protocol_says_are_refused(void **state)
{
    static const char *const texts[] = {
        "0",
        ";",
        "0 1 2 3 4 5;",
        "0 1 2 3 4 5 6",
        "0 1 2 3 4 5 6 7;",
        "2 1 2 3 4 5 6;", /* no such worker */
        "0 -2 2 3 4 5 6;",
        "0 1 0 3 4 5 6;", /* no step is complete */
        "0 1 2 17 4 5 6;",
        "0 1 2 3 86400000001 5 6;",
        "0 1 2 3 4 5 x;",
        "0 1 2 3 4 5 99999999999999999999999;",
        "0 9223372036854775808 2 3 4 5 6;",
    };
    struct step_times t;
    int local;
    const char *good = "1 -1 2 3 4 5 6;0 1 2 3 4 5 0;";
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *at = texts[i];
        assert_int_equal(step_times_take(&at, 2, &local, &t), -EPROTO);
    }
    assert_int_equal(step_times_take(&good, 2, &local, &t), 1);
    assert_true(local == 1 && t.step == -1 && t.count == 2 && t.n == 3 && t.wall_us == 4 &&
                t.cpu_us == 5 && t.work_us == 6);
    assert_int_equal(step_times_take(&good, 2, &local, &t), 1);
    assert_true(local == 0 && t.step == 1);
    assert_int_equal(step_times_take(&good, 2, &local, &t), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_counts_once_the_next_one_begins),
        cmocka_unit_test(times_are_medians_of_the_last_steps),
        cmocka_unit_test(waits_are_counted_only_where_they_are_marked),
        cmocka_unit_test(a_page_of_any_bytes_gives_bounded_times),
        cmocka_unit_test(the_last_times_of_each_rank_are_kept),
        cmocka_unit_test(an_even_job_has_no_straggler),
        cmocka_unit_test(one_slow_rank_is_one_event_and_another_one_when_it_is_over),
        cmocka_unit_test(a_slow_node_is_one_event),
        cmocka_unit_test(half_of_the_ranks_may_be_slow_but_no_more),
        cmocka_unit_test(few_steps_and_old_reports_name_nobody),
        cmocka_unit_test(a_difference_that_costs_the_job_nothing_names_nobody),
        cmocka_unit_test(without_marks_of_waits_processor_times_are_compared),
        cmocka_unit_test(times_that_are_not_as_the_protocol_says_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
