/* worker/hang: hang detection on the caller's clock; time in which the caller was stopped is
 * ignored. */
#include "base/io.h"
#include "worker/hang.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

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
        (void)hang_tick(h, now, 0);
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
        (void)hang_tick(h, now, 0);
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

/* Tick once, `late` after the planned time, of which this process waited `waited` for a processor.
 * Return how long worker 0 has been silent then. */
static uint64_t silent_after(uint64_t late, uint64_t waited)
{
    struct hang *h = watch();
    const uint64_t step = hang_interval(h);
    const uint64_t own = 77 * S;
    assert_false(hang_tick(h, START + step, own));
    (void)hang_look(h, 0, 0, START + step);
    const uint64_t now = START + 2 * step + late;
    assert_int_equal(hang_tick(h, now, own + waited), late > 0);
    const uint64_t silent = hang_silent(h, 0, now);
    hang_free(h);
    return silent;
}

static void a_busy_machine_makes_no_worker_active(void **state)
{
    const uint64_t two_steps = 2 * S;
    (void)state;
    assert_int_equal(silent_after(0, 0), two_steps);
    assert_int_equal(silent_after(8 * S, 0), two_steps);                     /* stopped */
    assert_int_equal(silent_after(8 * S, 8 * S), two_steps + 8 * S);         /* waited */
    assert_int_equal(silent_after(8 * S, 7 * S + S / 2), two_steps + 8 * S); /* the same, nearly */
    assert_int_equal(silent_after(8 * S, 3 * S), two_steps + 3 * S);         /* both */
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

/* Let worker 0 give no sign until `end`, and use this much of each in a second. Return the first
 * time at which it hangs; 0: never. */
static uint64_t use(struct hang *h, uint64_t from, uint64_t end, int signs,
                    struct hang_counters per_s)
{
    for (uint64_t now = from; now <= end; now += hang_interval(h)) {
        const double s = (double)(now - START) / (double)S;
        const struct hang_counters c = {
            .cpu_ns = (uint64_t)(s * (double)per_s.cpu_ns),
            .io_bytes = (uint64_t)(s * (double)per_s.io_bytes),
            .net_bytes = (uint64_t)(s * (double)per_s.net_bytes),
        };
        (void)hang_tick(h, now, 0);
        if (hang_wants_counters(h, 0, now))
            hang_count(h, 0, signs, &c, now);
        if (hang_look(h, 0, 0, now))
            return now;
    }
    return 0;
}

static void what_a_worker_uses_shows_that_it_is_active(void **state)
{
    static const struct {
        const char *what;
        struct hang_counters per_s;
        int signs;
        bool hangs;
    } rows[] = {
        {"nothing", {0}, HANG_SIGNS_ALL, true},
        {"a processor", {.cpu_ns = S}, HANG_SIGNS_ALL, false},
        {"a processor in part", {.cpu_ns = S / 20}, HANG_SIGNS_ALL, false},
        {"what gloo uses while it waits", {3000000, 20, 0}, HANG_SIGNS_ALL, true},
        {"keep-alive messages", {.net_bytes = 200}, HANG_SIGNS_ALL, true},
        {"the network", {.net_bytes = 100000}, HANG_SIGNS_ALL, false},
        {"files", {.io_bytes = 100000}, HANG_SIGNS_ALL, false},
        {"a processor, to wait for a GPU", {.cpu_ns = S}, HANG_SIGNS_ALL & ~HANG_SIGN_CPU, true},
        {"what does not count", {S, 100000, 100000}, HANG_SIGN_OUTPUT, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hang *h = watch();
        const uint64_t found = use(h, START + hang_interval(h), START + 10 * LIMIT, rows[i].signs,
                                   rows[i].per_s);
        if ((found != 0) != rows[i].hangs)
            fail_msg("a worker that uses %s", rows[i].what);
        if (rows[i].hangs) /* the time before the first reading counts as activity */
            assert_in_range(found, START + LIMIT, START + LIMIT + 2 * hang_interval(h));
        hang_free(h);
    }
}

static void silence_begins_when_the_worker_stops_working(void **state)
{
    (void)state;
    struct hang *h = watch();
    const uint64_t stop = START + 5 * LIMIT;
    struct hang_counters c = {0};
    uint64_t found = 0;
    for (uint64_t now = START + S; found == 0; now += hang_interval(h)) {
        c.cpu_ns = (now < stop ? now : stop) - START;
        (void)hang_tick(h, now, 0);
        if (hang_wants_counters(h, 0, now))
            hang_count(h, 0, HANG_SIGNS_ALL, &c, now);
        found = hang_look(h, 0, 0, now) ? now : 0;
    }
    assert_in_range(found, stop + LIMIT, stop + LIMIT + 2 * hang_interval(h));
    assert_int_equal(hang_used(h, 0).cpu_ns, 0); /* since then */
    hang_free(h);
}

static void a_process_that_ends_was_active(void **state)
{
    (void)state;
    struct hang *h = watch();
    const struct hang_counters before = {.cpu_ns = 50 * S}, after = {.cpu_ns = 10 * S};
    hang_count(h, 0, HANG_SIGNS_ALL, &before, START + S);
    hang_count(h, 0, HANG_SIGNS_ALL, &after, START + LIMIT);
    assert_int_equal(hang_silent(h, 0, START + LIMIT), 0);
    hang_free(h);
}

static void counters_are_read_only_while_no_sign_comes(void **state)
{
    (void)state;
    struct hang *h = watch();
    uint64_t now = START;
    for (int i = 1; i < 100; i++) { /* a sign at each look */
        now += hang_interval(h);
        (void)hang_look(h, 0, (uint64_t)i, now);
        assert_false(hang_wants_counters(h, 0, now));
    }
    now += hang_interval(h);
    (void)hang_look(h, 0, 99, now);
    assert_true(hang_wants_counters(h, 0, now));
    hang_count(h, 0, HANG_SIGNS_ALL, &(struct hang_counters){0}, now);
    assert_false(hang_wants_counters(h, 0, now + LIMIT / 20));
    assert_true(hang_wants_counters(h, 0, now + LIMIT / 10));
    hang_free(h);
}

/* Another node may end the wait at any time: what is known then must not be old. */
static void past_the_timeout_counters_are_wanted_at_each_check(void **state)
{
    struct hang *h = NULL;
    const struct hang_counters none = {0};
    uint64_t now = START + S;
    (void)state;
    assert_int_equal(hang_new(&h, 1, 60 * LIMIT, START), 0);
    hang_count(h, 0, HANG_SIGNS_ALL, &none, now);
    assert_false(hang_wants_counters(h, 0, now + hang_interval(h)));
    now += 61 * LIMIT;
    hang_count(h, 0, HANG_SIGNS_ALL, &none, now);
    assert_true(hang_wants_counters(h, 0, now + hang_interval(h)));
    hang_free(h);
}

static void missing_signs_are_named(void **state)
{
    static const struct {
        int signs;
        const char *text;
    } rows[] = {
        {HANG_SIGN_OUTPUT, "no output"},
        {HANG_SIGN_FILE, "no heartbeat"},
        {HANG_SIGN_OUTPUT | HANG_SIGN_FILE, "no output or heartbeat"},
        {HANG_SIGN_OUTPUT | HANG_SIGN_NETWORK, "no output or network traffic"},
        {HANG_SIGNS_ALL, "no output, heartbeat, processor time, I/O or network traffic"},
    };
    char text[80], cut[8];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(hang_missing(rows[i].signs, text, sizeof(text)), rows[i].text);
    assert_string_equal(hang_missing(HANG_SIGNS_ALL, cut, sizeof(cut)), "no outp");
    assert_int_equal(hang_signs(HANG_SIGNS_ACTIVITY, false), HANG_SIGNS_ALL);
    assert_int_equal(hang_signs(HANG_SIGNS_ACTIVITY, true), HANG_SIGNS_ALL & ~HANG_SIGN_CPU);
    assert_int_equal(hang_signs(HANG_SIGNS_ACTIVITY | HANG_SIGN_CPU, true), HANG_SIGNS_ALL);
    assert_int_equal(hang_signs(HANG_SIGN_FILE, true), HANG_SIGN_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_worker_is_found_after_the_timeout_and_within_a_look),
        cmocka_unit_test(any_change_of_the_sign_is_life),
        cmocka_unit_test(a_stop_of_the_whole_job_is_forgiven),
        cmocka_unit_test(a_busy_machine_makes_no_worker_active),
        cmocka_unit_test(what_a_worker_uses_shows_that_it_is_active),
        cmocka_unit_test(silence_begins_when_the_worker_stops_working),
        cmocka_unit_test(a_process_that_ends_was_active),
        cmocka_unit_test(counters_are_read_only_while_no_sign_comes),
        cmocka_unit_test(past_the_timeout_counters_are_wanted_at_each_check),
        cmocka_unit_test(missing_signs_are_named),
        cmocka_unit_test(looks_are_neither_too_many_nor_too_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
