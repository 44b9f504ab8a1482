/* worker/hang: hang detection on the caller's clock; time in which the caller was stopped is
 * ignored. */
#include "base/io.h"
#include "worker/hang.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define S DD_NS_PER_S
#define START (1000 * S)
#define LIMIT (10 * S)

static struct hang *watch(void)
{
    struct hang *h = NULL;
    assert_int_equal(hang_new(&h, 2, LIMIT, START), 0);
    return h;
}

/* Tick until `end` like a timer. Return the first time at which worker 0 hangs, whose sign of life
 * stays `sign`; 0: never. */
static uint64_t run(struct hang *h, uint64_t from, uint64_t end, uint64_t sign)
{
    for (uint64_t now = from; now <= end; now += hang_interval(h)) {
        hang_tick(h, now);
        if (hang_look(h, 0, sign, now))
            return now;
    }
    return 0;
}

static void a_silent_worker_is_found_after_the_timeout_and_within_a_look(void **state)
{
    (void)state;
    struct hang *h = watch();
    uint64_t found = run(h, START + hang_interval(h), START + 10 * LIMIT, 0);
    assert_in_range(found, START + LIMIT, START + LIMIT + hang_interval(h));
    assert_int_equal(hang_silent(h, 0, found), found - START);
    hang_free(h);
}

static void any_change_of_the_sign_is_life(void **state)
{
    (void)state;
    struct hang *h = watch();
    uint64_t now = START;
    for (int i = 0; i < 1000; i++) {
        now += hang_interval(h);
        hang_tick(h, now);
        assert_false(hang_look(h, 0, (uint64_t)(i / 9 * 7919) ^ UINT64_MAX, now));
    }
    assert_true(hang_look(h, 1, 0, now)); /* worker 1 is judged separately */
    hang_alive(h, 1, now);
    assert_false(hang_look(h, 1, 0, now));
    hang_free(h);
}

static void a_stop_of_the_whole_job_is_forgiven(void **state)
{
    (void)state;
    struct hang *h = watch();
    uint64_t step = hang_interval(h);
    uint64_t stop = START + LIMIT / 2;
    assert_int_equal(run(h, START + step, stop, 7), 0);
    uint64_t found = run(h, stop + 3600 * S, stop + 3600 * S + 10 * LIMIT, 7); /* an hour later */
    assert_in_range(found, stop + 3600 * S + LIMIT / 2 - step, stop + 3600 * S + LIMIT + 2 * step);
    hang_free(h);
}

static void looks_are_neither_too_many_nor_too_few(void **state)
{
    (void)state;
    static const uint64_t limits[] = {1, DD_NS_PER_MS, S, 60 * S, 86400 * S};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct hang *h = NULL;
        assert_int_equal(hang_new(&h, 1, limits[i], START), 0);
        assert_in_range(hang_interval(h), 50 * DD_NS_PER_MS, 5 * S);
        hang_free(h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_worker_is_found_after_the_timeout_and_within_a_look),
        cmocka_unit_test(any_change_of_the_sign_is_life),
        cmocka_unit_test(a_stop_of_the_whole_job_is_forgiven),
        cmocka_unit_test(looks_are_neither_too_many_nor_too_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
