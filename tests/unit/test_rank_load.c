/* rdzv/rank_load, and rdzv/stragglers with loads: ranks that something keeps from computing. */
#include "base/auto.h"
#include "rdzv/rank_load.h"
#include "rdzv/stragglers.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS = 8, EACH = 2 }; /* ranks; of each node */

/* ---- the window of a rank ---- */

static void add_waits(struct load_window *w, int n, int percent)
{
    for (int i = 0; i < n; i++)
        load_window_add_wait(w, percent);
}

static void add_clocks(struct load_window *w, int n, struct rank_load reading)
{
    for (int i = 0; i < n; i++)
        load_window_add_clock(w, &reading);
}

static void a_load_is_the_median_of_the_last_readings(void **state)
{
    static const struct {
        int quiet, waits, then; /* readings with 0, 60 and 70 percent */
        int median;             /* -1: too few readings */
    } rows[] = {
        {0, 7, 0, -1}, {0, 8, 0, 60},  {7, 7, 0, 0}, /* of two in the middle, the lower one */
        {15, 7, 0, 0}, {15, 8, 0, 60}, {100, 15, 7, 60}, {100, 15, 8, 70},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct load_window w = {0};
        struct rank_load l;
        add_waits(&w, rows[i].quiet, 0);
        add_waits(&w, rows[i].waits, 60);
        add_waits(&w, rows[i].then, 70);
        assert_int_equal(load_window_median(&w, &l), rows[i].median >= 0);
        assert_int_equal(l.wait, rows[i].median >= 0 ? rows[i].median : 0);
    }
}

static void a_clock_needs_readings_with_work(void **state)
{
    static const struct {
        int slow, idle, fast; /* readings */
        int median;           /* 0: not known */
    } rows[] = {
        {7, 8, 0, 0},   {8, 7, 0, 600},  {4, 0, 4, 1980}, /* the higher one of two in the middle */
        {5, 6, 4, 600}, {7, 0, 8, 1980},
    };
    const struct rank_load slow = {.mhz = 600, .max_mhz = 1980, .gpu = 3, .reason = LOAD_HOT};
    const struct rank_load fast = {.mhz = 1980, .max_mhz = 1980, .gpu = 3};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct load_window w = {0};
        struct rank_load l;
        add_clocks(&w, rows[i].slow, slow);
        add_clocks(&w, rows[i].idle, (struct rank_load){0});
        add_clocks(&w, rows[i].fast, fast);
        add_waits(&w, 40, 9); /* the GPUs are read less often */
        assert_true(load_window_median(&w, &l));
        assert_int_equal(l.mhz, rows[i].median);
        assert_int_equal(l.gpu, rows[i].median > 0 ? 3 : 0);
        assert_int_equal(l.reason, rows[i].median == 600 ? LOAD_HOT : LOAD_NO_REASON);
        assert_int_equal(l.wait, 9);
    }
}

static void the_daemon_gets_what_has_changed(void **state)
{
    static const struct {
        struct rank_load sent, now;
        bool news;
    } rows[] = {
        {{0}, {.wait = 4}, false},
        {{0}, {.wait = 5}, true},
        {{.wait = 60}, {.wait = 57}, false},
        {{.wait = 60}, {.wait = 0}, true},
        {{0}, {.mhz = 1980, .max_mhz = 1980}, true}, /* of all GPUs once, for their median */
        {{.mhz = 1980, .max_mhz = 1980}, {.mhz = 1910, .max_mhz = 1980}, false},
        {{.mhz = 1980, .max_mhz = 1980}, {.mhz = 600, .max_mhz = 1980}, true},
        {{.mhz = 1980, .max_mhz = 1980}, {0}, false}, /* without work now */
        {{.mhz = 1980, .max_mhz = 1980}, {.mhz = 1980, .max_mhz = 1980, .reason = LOAD_HOT}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct load_sent sent = {.load = rows[i].sent, .any = true};
        assert_int_equal(load_is_due(&sent, &rows[i].now), rows[i].news);
    }
}

static int times_due(struct load_sent *sent, struct rank_load load)
{
    int n = 0;
    for (int i = 0; i < 100; i++)
        n += load_is_due(sent, &load);
    return n;
}

static void a_change_is_sent_and_repeated_a_few_times(void **state)
{
    struct load_sent sent = {0};
    (void)state;
    assert_int_equal(times_due(&sent, (struct rank_load){0}), 1 + LOAD_REPEATS);
    assert_int_equal(times_due(&sent, (struct rank_load){.wait = 4}), 0);
    assert_int_equal(times_due(&sent, (struct rank_load){.wait = 60}), 1 + LOAD_REPEATS);
    assert_int_equal(sent.load.wait, 60);
}

/* ---- comparison ---- */

static const struct rank_load *at(const void *arg, int i)
{
    return (const struct rank_load *)arg + i;
}

static void a_rank_is_judged_by_the_median_of_all(void **state)
{
    static const struct {
        int wait[RANKS];
        unsigned signs, wanted; /* of rank 5 */
    } rows[] = {
        {{0, 0, 0, 0, 0, 0, 0, 0}, 0, 0},
        {{0, 1, 0, 2, 0, 39, 0, 0}, 0, 0},
        {{0, 1, 0, 2, 0, 62, 0, 0}, 0, LOAD_WAITS},
        {{0, 1, 0, 2, 0, 30, 0, 0}, LOAD_WAITS, LOAD_WAITS}, /* between the limits */
        {{0, 1, 0, 2, 0, 19, 0, 0}, LOAD_WAITS, 0},
        {{60, 60, 60, 60, 0, 62, 0, 0}, 0, 0},         /* most ranks wait */
        {{0, 60, 60, 60, 0, 62, 0, 0}, 0, LOAD_WAITS}, /* half of them */
        {{90, 95, 92, 91, 97, 99, 93, 94}, 0, 0},      /* too many threads on all nodes */
        {{50, 55, 52, 51, 57, 100, 53, 54}, 0, LOAD_WAITS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rank_load v[RANKS] = {{0}};
        struct load_medians m;
        for (int k = 0; k < RANKS; k++)
            v[k].wait = rows[i].wait[k];
        load_medians_find(&m, RANKS, at, v);
        assert_int_equal(load_judge(&v[5], &m, rows[i].signs), rows[i].wanted);
    }
}

static void a_clock_is_judged_by_the_median_of_gpus_with_work(void **state)
{
    static const struct {
        int mhz[RANKS];          /* 0: without work */
        enum load_reason reason; /* of rank 5 */
        unsigned signs, wanted;
    } rows[] = {
        {{1980, 1980, 1980, 1980, 1980, 1980, 1980, 1980}, LOAD_NO_REASON, 0, 0},
        {{1980, 1980, 1980, 1980, 1980, 1020, 1980, 1980}, LOAD_NO_REASON, 0, 0},
        {{1980, 1980, 1980, 1980, 1980, 900, 1980, 1980}, LOAD_NO_REASON, 0, LOAD_SLOW_CLOCK},
        {{1980, 1980, 1980, 1980, 1980, 1100, 1980, 1980},
         LOAD_NO_REASON,
         LOAD_SLOW_CLOCK,
         LOAD_SLOW_CLOCK},
        {{1980, 1980, 1980, 1980, 1980, 1200, 1980, 1980}, LOAD_NO_REASON, LOAD_SLOW_CLOCK, 0},
        /* the limit of power lowers the clock of all */
        {{1300, 1280, 1310, 1290, 1300, 1250, 1300, 1280}, LOAD_NO_REASON, 0, 0},
        {{1300, 1280, 1310, 1290, 1300, 1250, 1300, 1280}, LOAD_HOT, 0, 0},
        {{1300, 1280, 1310, 1290, 1300, 1000, 1300, 1280}, LOAD_HOT, 0, LOAD_SLOW_CLOCK},
        {{1980, 1980, 1980, 1980, 1980, 1600, 1980, 1980}, LOAD_POWER_BRAKE, 0, LOAD_SLOW_CLOCK},
        /* most GPUs are slow, and ranks without work do not count */
        {{600, 600, 600, 600, 600, 600, 1980, 1980}, LOAD_HOT, 0, 0},
        {{0, 0, 0, 0, 0, 600, 1980, 0}, LOAD_NO_REASON, 0, LOAD_SLOW_CLOCK},
        {{0, 0, 0, 0, 0, 600, 0, 0}, LOAD_HOT, 0, 0},
        {{1980, 1980, 1980, 1980, 1980, 0, 1980, 1980}, LOAD_NO_REASON, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct rank_load v[RANKS] = {{0}};
        struct load_medians m;
        for (int k = 0; k < RANKS; k++)
            v[k] = (struct rank_load){.mhz = rows[i].mhz[k], .max_mhz = 1980};
        v[5].reason = rows[i].reason;
        load_medians_find(&m, RANKS, at, v);
        assert_int_equal(load_judge(&v[5], &m, rows[i].signs), rows[i].wanted);
    }
}

/* ---- stragglers ---- */

struct job {
    struct stragglers *s;
    int n;
    struct rank_load v[RANKS];
    int began, over; /* events */
    struct straggler last;
};

static struct job even(int ranks)
{
    struct job j = {.n = ranks};
    assert_int_equal(stragglers_new(&j.s, ranks), 0);
    for (int node = 0; node < ranks / EACH; node++)
        stragglers_place(j.s, node * EACH, EACH, node);
    return j;
}

static void judge(struct job *j)
{
    struct straggler g;
    stragglers_judge(j->s);
    while (stragglers_next(j->s, &g)) {
        j->last = g;
        j->began += g.slow;
        j->over += !g.slow;
    }
}

/* A message of one rank. */
static void sends(struct job *j, int rank)
{
    stragglers_take_load(j->s, rank, &j->v[rank]);
    judge(j);
}

/* All ranks send n messages. */
static void all_send(struct job *j, int n)
{
    for (int i = 0; i < n; i++)
        for (int rank = 0; rank < j->n; rank++)
            sends(j, rank);
}

static void confirm(struct job *j)
{
    all_send(j, LOAD_REPEATS + 1);
}

static void a_node_whose_rank_waits_is_one_event_and_another_one_when_it_is_over(void **state)
{
    struct job j = even(RANKS);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    (void)state;
    j.v[4].wait = 62;
    confirm(&j);
    assert_true(j.began == 1 && j.last.rank == 4 && j.last.node == 2);
    assert_int_equal(straggler_text(&j.last, "node3", &text), 0);
    assert_string_equal(dd_buf_str(&text), "rank 4 on node3 waits for a processor 62 % of the time "
                                           "(median of all ranks below 5 %)");
    j.v[5].wait = 70;
    confirm(&j);
    j.v[4].wait = 3;
    confirm(&j);
    assert_int_equal(j.over, 0); /* rank 5 still waits */
    j.v[5].wait = 3;
    sends(&j, 5);
    assert_true(j.began == 1 && j.over == 1);
    stragglers_free(j.s);
}

static void the_rank_that_began_is_the_one_that_ends(void **state)
{
    struct job j = even(RANKS);
    (void)state;
    j.v[5].wait = 62;
    confirm(&j);
    j.v[5].wait = 1;
    j.v[4].wait = 10; /* it waits more now, but has never been a straggler */
    sends(&j, 4);
    sends(&j, 5);
    assert_true(j.over == 1 && j.last.rank == 5 && j.last.load.wait == 1);
    stragglers_free(j.s);
}

static void a_rank_out_of_range_is_ignored(void **state)
{
    struct job j = even(RANKS);
    (void)state;
    confirm(&j);
    for (int i = 0; i < 2 * LOAD_REPEATS; i++) {
        stragglers_take_load(j.s, -1, &(struct rank_load){.wait = 99});
        stragglers_take_load(j.s, RANKS, &(struct rank_load){.wait = 99});
        judge(&j);
    }
    assert_int_equal(j.began, 0);
    stragglers_free(j.s);
}

/* The agents send one after the other, and the last one long after the first one. */
static void ranks_that_all_wait_are_no_stragglers_while_their_loads_arrive(void **state)
{
    struct job j = even(RANKS);
    (void)state;
    for (int i = 0; i < RANKS; i++)
        j.v[i].wait = 90;
    for (int rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < 10 * LOAD_REPEATS; i++)
            sends(&j, rank);
    confirm(&j);
    for (int i = 0; i < RANKS; i++)
        j.v[i].wait = 0;
    confirm(&j);
    for (int i = 0; i < RANKS; i++)
        j.v[i].wait = 90;
    confirm(&j);
    assert_int_equal(j.began, 0);
    stragglers_free(j.s);
}

/* Each agent sends a change, repeats it, and then is silent. */
static void a_change_and_its_repetitions_name_the_rank(void **state)
{
    struct job j = even(RANKS);
    (void)state;
    confirm(&j);
    j.v[5].wait = 90;
    for (int i = 0; i < 1 + LOAD_REPEATS; i++) {
        assert_int_equal(j.began, 0);
        sends(&j, 5);
    }
    assert_true(j.began == 1 && j.last.rank == 5);
    stragglers_free(j.s);
    j = even(RANKS);
    for (int i = 0; i < RANKS; i++)
        j.v[i].wait = 90;
    confirm(&j);
    for (int i = 0; i < RANKS; i++)
        j.v[i].wait = i == 5 ? 90 : 0;
    for (int n = 0; n < 1 + LOAD_REPEATS; n++)
        for (int i = 0; i < RANKS; i++)
            if (i != 5) /* whose load does not change */
                sends(&j, i);
    assert_true(j.began == 1 && j.last.rank == 5);
    stragglers_free(j.s);
}

static void a_throttled_gpu_is_named_with_the_reason(void **state)
{
    struct job j = even(RANKS);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    (void)state;
    for (int i = 0; i < RANKS; i++)
        j.v[i] = (struct rank_load){.mhz = 1755, .max_mhz = 1980, .gpu = i % EACH};
    confirm(&j);
    assert_int_equal(j.began, 0);
    j.v[7] = (struct rank_load){.mhz = 345, .max_mhz = 1980, .gpu = 1, .reason = LOAD_HOT};
    confirm(&j);
    assert_true(j.began == 1 && j.last.rank == 7);
    assert_int_equal(straggler_text(&j.last, "node4", &text), 0);
    assert_string_equal(dd_buf_str(&text),
                        "rank 7 on node4 uses GPU 1, which runs at 345 of 1980 MHz (17 %; median "
                        "of all ranks 88 %; the GPU is too hot)");
    dd_buf_clear(&text);
    j.v[7] = (struct rank_load){.mhz = 1740, .max_mhz = 1980, .gpu = 1};
    sends(&j, 7);
    assert_true(j.over == 1 && j.last.rank == 7);
    assert_int_equal(straggler_text(&j.last, "node4", &text), 0);
    assert_string_equal(dd_buf_str(&text), "rank 7 on node4 uses GPU 1, which runs at 1740 of 1980 "
                                           "MHz (87 %; median of all ranks 88 %)");
    stragglers_free(j.s);
}

static void a_throttled_gpu_without_work_slows_no_rank_down(void **state)
{
    struct job j = even(RANKS);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    (void)state;
    for (int i = 0; i < RANKS; i++)
        j.v[i] = (struct rank_load){.mhz = i == 6 ? 345 : 1755, .max_mhz = 1980};
    confirm(&j);
    assert_true(j.began == 1 && j.last.rank == 6);
    j.v[6] = (struct rank_load){0};
    sends(&j, 6);
    assert_true(j.over == 1 && j.last.rank == 6);
    assert_int_equal(straggler_text(&j.last, "node4", &text), 0);
    assert_string_equal(dd_buf_str(&text), "rank 6 on node4 uses no busy GPU with a known clock");
    stragglers_free(j.s);
}

static void the_only_rank_is_compared_with_none(void **state)
{
    struct job j = even(1);
    (void)state;
    j.v[0] = (struct rank_load){.wait = 99, .mhz = 300, .max_mhz = 1980, .reason = LOAD_HOT};
    confirm(&j);
    assert_int_equal(j.began, 0);
    stragglers_free(j.s);
}

static void loads_do_not_count_once_a_rank_marks_steps(void **state)
{
    struct job j = even(RANKS);
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    struct steps_view v;
    struct straggler g;
    (void)state;
    j.v[5].wait = 80;
    confirm(&j);
    stragglers_view(j.s, &v);
    assert_true(j.began == 1 && !v.marked);
    stragglers_take(j.s, 0, &(struct step_times){.step = 1, .count = 1, .wall_us = 50});
    judge(&j);
    stragglers_view(j.s, &v);
    assert_true(j.over == 1 && v.marked && j.last.rank == 5);
    assert_int_equal(straggler_text(&j.last, "node3", &text), 0);
    assert_string_equal(dd_buf_str(&text), "rank 5 on node3 is judged by its steps from now on");
    confirm(&j);
    assert_true(j.began == 1 && !stragglers_from(j.s, 0, &g));
    stragglers_free(j.s);
}

/* ---- text ---- */

static void loads_that_are_not_as_the_protocol_says_are_refused(void **state)
{
    static const char *const texts[] = {
        "0",
        ";",
        "0 1 2 3 4;",
        "0 1 2 3 4 0",
        "0 1 2 3 4 0 0;",
        "2 1 2 3 4 0;", /* no such worker */
        "0 101 2 3 4 0;",
        "0 1 100000 3 4 0;",
        "0 1 2 3 1024 0;",
        "0 1 2 3 4 4;",
        "0 -1 2 3 4 0;",
        "0 1 2 3 4 99999999999999999999999;",
    };
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1000);
    const struct rank_load sent = {
        .wait = 100, .mhz = 345, .max_mhz = 1980, .gpu = 1023, .reason = LOAD_HARDWARE};
    struct rank_load l;
    int local;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const char *p = texts[i];
        assert_int_equal(load_take(&p, 2, &local, &l), -EPROTO);
    }
    assert_int_equal(load_put(&text, 1, &sent), 0);
    assert_int_equal(load_put(&text, 0, &(struct rank_load){0}), 0);
    const char *p = dd_buf_str(&text);
    assert_int_equal(load_take(&p, 2, &local, &l), 1);
    assert_true(local == 1 && l.wait == 100 && l.mhz == 345 && l.max_mhz == 1980 && l.gpu == 1023 &&
                l.reason == LOAD_HARDWARE);
    assert_int_equal(load_take(&p, 2, &local, &l), 1);
    assert_true(local == 0 && l.wait == 0 && load_clock(&l) == 0);
    assert_int_equal(load_take(&p, 2, &local, &l), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_load_is_the_median_of_the_last_readings),
        cmocka_unit_test(a_clock_needs_readings_with_work),
        cmocka_unit_test(the_daemon_gets_what_has_changed),
        cmocka_unit_test(a_change_is_sent_and_repeated_a_few_times),
        cmocka_unit_test(a_rank_is_judged_by_the_median_of_all),
        cmocka_unit_test(a_clock_is_judged_by_the_median_of_gpus_with_work),
        cmocka_unit_test(a_node_whose_rank_waits_is_one_event_and_another_one_when_it_is_over),
        cmocka_unit_test(the_rank_that_began_is_the_one_that_ends),
        cmocka_unit_test(a_rank_out_of_range_is_ignored),
        cmocka_unit_test(ranks_that_all_wait_are_no_stragglers_while_their_loads_arrive),
        cmocka_unit_test(a_change_and_its_repetitions_name_the_rank),
        cmocka_unit_test(a_throttled_gpu_is_named_with_the_reason),
        cmocka_unit_test(a_throttled_gpu_without_work_slows_no_rank_down),
        cmocka_unit_test(the_only_rank_is_compared_with_none),
        cmocka_unit_test(loads_do_not_count_once_a_rank_marks_steps),
        cmocka_unit_test(loads_that_are_not_as_the_protocol_says_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
