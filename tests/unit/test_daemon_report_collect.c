/* daemon: conversion of an agent's times to the daemon's clock. */
#include "daemon/report_collect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void quickest_message_shows_the_offset(void **state)
{
    (void)state;
    struct report_clock c = {0};
    report_clock_update(&c, 1000,
                        51000 + 300); /* agent's clock: 50000 behind; latencies: 300, 20, 900 */
    report_clock_update(&c, 2000, 52000 + 20);
    report_clock_update(&c, 3000, 53000 + 900);
    assert_int_equal(report_clock_time(&c, 2900, 54000), 52920);
}

static void times_are_never_later_than_their_message(void **state)
{
    (void)state;
    struct report_clock c = {0};
    assert_int_equal(report_clock_time(&c, 77, 500), 500); /* offset not known yet */
    report_clock_update(&c, 100, 400);
    assert_int_equal(report_clock_time(&c, 900, 500), 500);
    assert_int_equal(report_clock_time(&c, INT64_MAX, 500), 500);
    report_clock_update(&c, INT64_MAX, 600); /* a false time */
    assert_int_equal(report_clock_time(&c, 0, 700), 700);
}

static void clocks_that_run_ahead_are_no_matter(void **state)
{
    (void)state;
    struct report_clock c = {0};
    report_clock_update(&c, 90000, 1000);
    assert_int_equal(report_clock_time(&c, 90500, 2000), 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quickest_message_shows_the_offset),
        cmocka_unit_test(times_are_never_later_than_their_message),
        cmocka_unit_test(clocks_that_run_ahead_are_no_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
