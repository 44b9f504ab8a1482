/* daemon: an agent's times on the daemon's clock. */
#include "daemon/report_collect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void quickest_message_shows_the_offset(void **state)
{
    (void)state;
    struct account_clock c = {0};
    account_clock(&c, 1000,
                  51000 + 300); /* their clock is 50000 behind; 300, 20 and 900 under way */
    account_clock(&c, 2000, 52000 + 20);
    account_clock(&c, 3000, 53000 + 900);
    assert_int_equal(account_time(&c, 2900, 54000), 52920);
}

static void times_are_never_later_than_their_message(void **state)
{
    (void)state;
    struct account_clock c = {0};
    assert_int_equal(account_time(&c, 77, 500), 500); /* nothing is known yet */
    account_clock(&c, 100, 400);
    assert_int_equal(account_time(&c, 900, 500), 500);
    assert_int_equal(account_time(&c, INT64_MAX, 500), 500);
    account_clock(&c, INT64_MAX, 600); /* a liar */
    assert_int_equal(account_time(&c, 0, 700), 700);
}

static void clocks_that_run_ahead_are_no_matter(void **state)
{
    (void)state;
    struct account_clock c = {0};
    account_clock(&c, 90000, 1000);
    assert_int_equal(account_time(&c, 90500, 2000), 1500);
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
