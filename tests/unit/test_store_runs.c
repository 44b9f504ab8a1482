/* store/runs: the keys of a torchrun run are deleted with the last connection of the run, no
 * others. */
#include "store/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define RUN "/torch.rendezvous."

static struct store_bytes bytes(const char *s)
{
    return (struct store_bytes){(const unsigned char *)s, strlen(s)};
}

static struct store_engine *engine_with(const char *const *keys)
{
    const struct store_engine_limits limits = {.max_value = 1000, .max_bytes = 1 << 20};
    const unsigned char seed[DD_SIPHASH_SEED] = {1};
    struct store_engine *e;
    assert_int_equal(store_engine_new(&e, &limits, seed), 0);
    for (; *keys != NULL; keys++)
        assert_int_equal(store_set(e, bytes(*keys), bytes("x")), 0);
    return e;
}

static void what_begins_a_run(void **state)
{
    (void)state;
    static const struct {
        const char *key, *expected, *desired;
        bool begins;
    } rows[] = {
        {RUN "a", "", "Y2FuaW1hZGFt", true},   {RUN "a", "x", "Y2FuaW1hZGFt", false},
        {RUN "a", "", "Y2FuaW1hZGFtA", false}, {RUN, "", "Y2FuaW1hZGFt", false},
        {"/other", "", "Y2FuaW1hZGFt", false}, {"", "", "", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(
            store_runs_begins(bytes(rows[i].key), bytes(rows[i].expected), bytes(rows[i].desired)),
            rows[i].begins);
}

static void the_last_one_takes_its_keys_with_it(void **state)
{
    (void)state;
    static const char *const keys[] = {
        RUN "a",  RUN "a.0/MASTER_ADDR", RUN "a.12//x",   RUN "a.x/y",     RUN "a.0",
        RUN "ab", RUN "a.0/b",           RUN "a.0/b.1/y", "/default_pg/0", NULL};
    static const bool stays[] = {false, false, false, true, true, true, true, true, true};
    struct store_engine *e = engine_with(keys);
    const size_t before = store_engine_account(e)->used;
    struct store_runs runs = {0};
    struct store_run *first, *second, *inner;
    assert_int_equal(store_runs_join(&runs, e, bytes(RUN "a"), &first), 0);
    assert_int_equal(store_runs_join(&runs, e, bytes(RUN "a"), &second), 0);
    assert_int_equal(store_runs_join(&runs, e, bytes(RUN "a.0/b"), &inner),
                     0); /* an unusual, but valid run id */
    assert_ptr_equal(first, second);
    store_runs_leave(&runs, e, first);
    assert_true(store_exists(e, bytes(RUN "a")));
    store_runs_leave(&runs, e, second);
    for (size_t i = 0; keys[i] != NULL; i++)
        assert_int_equal(store_exists(e, bytes(keys[i])), stays[i]);
    store_runs_leave(&runs, e, inner);
    assert_false(store_exists(e, bytes(RUN "a.0/b")) || store_exists(e, bytes(RUN "a.0/b.1/y")));
    store_runs_leave(&runs, e, NULL);
    assert_true(LIST_EMPTY(&runs.list));
    assert_true(store_engine_account(e)->used < before);
    store_engine_free(e);
}

static void a_full_store_refuses_a_run(void **state)
{
    (void)state;
    static const char *const none[] = {NULL};
    struct store_engine *e = engine_with(none);
    struct store_runs runs = {0};
    struct store_run *r = NULL;
    store_engine_account(e)->max = store_engine_account(e)->used + 10;
    assert_true(store_runs_join(&runs, e, bytes(RUN "a"), &r) < 0);
    assert_null(r);
    assert_true(LIST_EMPTY(&runs.list));
    store_engine_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_begins_a_run),
        cmocka_unit_test(the_last_one_takes_its_keys_with_it),
        cmocka_unit_test(a_full_store_refuses_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
