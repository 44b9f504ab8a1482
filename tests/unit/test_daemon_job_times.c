/* daemon: the times that a job took to start, to run and to recover, computed from its events. */
#include "daemon/job_times.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void at(struct job_times *t, uint64_t now, enum journal_kind kind)
{
    job_times_event(
        t, &(struct journal_event){.kind = kind, .now_ns = now, .code = 3, .by_itself = true});
}

static void a_restart_is_no_part_of_the_running_time(void **state)
{
    struct job_times t;
    (void)state;
    job_times_init(&t, 100, 0);
    at(&t, 150, JOURNAL_ROUND);
    assert_int_equal(t.startup_ns, 0);
    at(&t, 160, JOURNAL_STARTED);
    assert_int_equal(t.startup_ns, 60);
    assert_int_equal(job_times_running(&t, 165), 5);
    at(&t, 170, JOURNAL_EXIT);
    at(&t, 170, JOURNAL_STOPPING);
    at(&t, 190, JOURNAL_ROUND);
    assert_int_equal(job_times_running(&t, 195), 10);
    at(&t, 200, JOURNAL_STARTED);
    assert_int_equal(t.recovery_ns, 30);
    assert_int_equal(t.startup_ns, 60);
    at(&t, 250, JOURNAL_FINISH);
    at(&t, 251, JOURNAL_LEAVE);
    assert_int_equal(job_times_running(&t, 900), 60);
    assert_int_equal(t.failed_workers, 1);
    assert_int_equal(t.lost_nodes, 0); /* nodes that leave after the end are not lost */
    assert_true(t.finished);
    assert_int_equal(t.code, 3);
}

static void a_round_that_never_ran_adds_to_the_recovery(void **state)
{
    struct job_times t;
    (void)state;
    job_times_init(&t, 100, 0);
    at(&t, 110, JOURNAL_ROUND);
    at(&t, 120, JOURNAL_STARTED);
    at(&t, 130, JOURNAL_LEAVE);
    at(&t, 130, JOURNAL_STOPPING);
    at(&t, 140, JOURNAL_ROUND);
    at(&t, 150, JOURNAL_STOPPING);
    at(&t, 160, JOURNAL_ROUND);
    at(&t, 170, JOURNAL_STARTED);
    assert_int_equal(t.recovery_ns, 40);
    assert_int_equal(t.lost_nodes, 1);
}

static void a_first_round_that_stops_while_it_starts_adds_to_the_start(void **state)
{
    struct job_times t;
    (void)state;
    job_times_init(&t, 100, 0);
    at(&t, 110, JOURNAL_ROUND);
    at(&t, 120, JOURNAL_STOPPING);
    at(&t, 130, JOURNAL_ROUND);
    at(&t, 140, JOURNAL_STARTED);
    assert_int_equal(t.startup_ns, 40);
    assert_int_equal(t.recovery_ns, 0);
}

static void a_later_daemon_knows_its_own_part_of_the_recovery(void **state)
{
    struct job_times t;
    (void)state;
    job_times_init(&t, 0, 500);
    at(&t, 520, JOURNAL_ROUND);
    at(&t, 530, JOURNAL_STARTED);
    assert_int_equal(t.startup_ns, 0);
    assert_int_equal(t.recovery_ns, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restart_is_no_part_of_the_running_time),
        cmocka_unit_test(a_round_that_never_ran_adds_to_the_recovery),
        cmocka_unit_test(a_first_round_that_stops_while_it_starts_adds_to_the_start),
        cmocka_unit_test(a_later_daemon_knows_its_own_part_of_the_recovery),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
