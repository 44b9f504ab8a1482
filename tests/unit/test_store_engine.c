/* store/engine: keys, queues, waits, barriers, limits. */
#include "store/engine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MANY = 1000 };

static const unsigned char seed[DD_SIPHASH_SEED] = "fixed for tests";

static struct store_bytes b(const char *s)
{
    return (struct store_bytes){(const unsigned char *)s, strlen(s)};
}

static int make(void **state, size_t max_value, size_t max_bytes)
{
    struct store_engine *e;
    struct store_engine_limits l = {.max_value = max_value, .max_bytes = max_bytes};
    assert_int_equal(store_engine_new(&e, &l, seed), 0);
    *state = e;
    return 0;
}

static int setup(void **state)
{
    return make(state, 1000, 1 << 20);
}

static int setup_large(void **state)
{
    return make(state, 64 << 20, 1 << 30);
}

static int teardown(void **state)
{
    struct store_engine *e = *state;
    store_engine_clear(e);
    assert_int_equal(store_engine_account(e)->used, 0); /* no byte is charged any more */
    store_engine_free(e);
    return 0;
}

static void has_value(struct store_engine *e, const char *key, const char *want)
{
    const struct store_value *v = store_get(e, b(key));
    assert_non_null(v);
    struct store_bytes got = store_value_bytes(v);
    assert_int_equal(got.n, strlen(want));
    if (got.n > 0)
        assert_memory_equal(got.p, want, got.n);
}

static void must_wait(struct store_engine *e, struct store_waiter *w, const char *key)
{
    struct store_bytes k = b(key);
    assert_int_equal(store_wait(e, w, &k, 1), 1);
}

static void must_pop(struct store_engine *e, const char *name, const char *want)
{
    struct store_value v = store_queue_pop(e, b(name));
    assert_int_equal(v.len, strlen(want));
    if (v.len > 0)
        assert_memory_equal(store_value_bytes(&v).p, want, v.len);
    store_blob_unref(v.blob);
}

/* ---- limits ---- */

static void set_refuses_a_value_over_the_limit(void **state)
{
    struct store_engine *e = *state;
    char big[1002] = "";
    memset(big, 'x', 1001);
    assert_int_equal(store_set(e, b("k"), b(big)), -EMSGSIZE);
    assert_int_equal(store_keys(e), 0);
    big[1000] = '\0';
    assert_int_equal(store_set(e, b("k"), b(big)), 0);
    assert_int_equal(store_append(e, b("k"), b("1")), -EMSGSIZE);
    assert_int_equal(store_append(e, b("k"), b("")), 0);
    has_value(e, "k", big);
    assert_int_equal(store_queue_push(e, b("q"), (struct store_bytes){b(big).p, 1001}), -EMSGSIZE);
    assert_int_equal(store_queue_len(e, b("q")), 0);
}

/* Fill the store with keys k0, k1, ... of 1000 bytes; return how many fit. */
static int fill(struct store_engine *e)
{
    char big[1001] = "", key[16];
    memset(big, 'x', 1000);
    for (int i = 0;; i++) {
        (void)snprintf(key, sizeof(key), "k%d", i);
        int rc = store_set(e, b(key), b(big));
        if (rc < 0) {
            assert_int_equal(rc, -ENOSPC);
            assert_null(store_get(e, b(key)));
            return i;
        }
    }
}

static void full_store_refuses_everything_that_needs_memory(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    struct store_bytes missing[3] = {b("no"), b("nor"), b("neither")};
    char long_key[400] = "";
    memset(long_key, 'k', sizeof(long_key) - 1);
    assert_true(store_has_room(e, 100, 100000));
    int n = fill(e);
    assert_in_range(n, 500, 1040); /* the limit is 1 MiB */
    assert_false(store_has_room(e, 1, 1001));
    assert_int_equal(store_queue_push(e, b(long_key), b(long_key)), -ENOSPC);
    for (int i = 0; i < 100; i++) { /* small values still fit for a while */
        int64_t sum;
        (void)snprintf(long_key, sizeof(long_key), "small%d", i);
        if (store_add(e, b(long_key), 1, &sum) < 0)
            break;
    }
    assert_int_equal(store_wait(e, &w, missing, 3), -ENOSPC);
    assert_false(store_is_waiting(&w));
    assert_int_equal(store_waiters(e), 0);
    assert_true(store_delete(e, b("k0")));
    assert_int_equal(store_wait(e, &w, missing, 3), 1);
    store_cancel(e, &w);
}

static void overwriting_does_not_add_up(void **state)
{
    struct store_engine *e = *state;
    char big[1001] = "";
    memset(big, 'x', 1000);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(store_set(e, b("k"), b(big)), 0);
}

static void shared_value_stays_charged_and_unchanged_until_it_is_let_go(void **state)
{
    struct store_engine *e = *state;
    assert_int_equal(store_set(e, b("k"), b("one")), 0);
    struct store_value shared = *store_get(e, b("k"));
    store_blob_ref(shared.blob);
    assert_int_equal(store_append(e, b("k"), b(" and two")), 0);
    assert_int_equal(store_set(e, b("k"), b("new")), 0);
    assert_true(store_delete(e, b("k")));
    assert_memory_equal(store_value_bytes(&shared).p, "one", 3);
    assert_int_not_equal(store_engine_account(e)->used, 0);
    store_blob_unref(shared.blob);
    assert_int_equal(store_engine_account(e)->used, 0);
}

/* ---- values ---- */

static void keys_are_opaque_bytes(void **state)
{
    struct store_engine *e = *state;
    struct store_bytes nul = {(const unsigned char *)"a\0b", 3}, a = b("a"), none = {NULL, 0};
    assert_int_equal(store_set(e, nul, b("1")), 0);
    assert_int_equal(store_set(e, a, b("2")), 0);
    assert_int_equal(store_set(e, none, none), 0);
    assert_int_equal(store_keys(e), 3);
    assert_memory_equal(store_value_bytes(store_get(e, nul)).p, "1", 1);
    has_value(e, "", "");
    assert_true(store_exists(e, none));
    assert_true(store_delete(e, none));
    assert_false(store_delete(e, none));
    assert_int_equal(store_keys(e), 2);
}

static void append_makes_the_key_and_grows_it(void **state)
{
    struct store_engine *e = *state;
    assert_int_equal(store_append(e, b("a"), b("")), 0);
    has_value(e, "a", "");
    assert_int_equal(store_append(e, b("a"), b("po")), 0);
    assert_int_equal(store_append(e, b("a"), b("tato")), 0);
    has_value(e, "a", "potato");
}

/* Would take minutes if each append copied the value. */
static void append_is_linear(void **state)
{
    struct store_engine *e = *state;
    char piece[65] = "";
    memset(piece, 'p', 64);
    for (int i = 0; i < 500000; i++)
        assert_int_equal(store_append(e, b("a"), b(piece)), 0);
    assert_int_equal(store_get(e, b("a"))->len, 500000 * 64);
}

static void add_reads_what_strtoll_reads(void **state)
{
    static const struct {
        const char *value;
        int64_t delta;
        int rc;
        const char *after;
    } rows[] = {
        {"5", 1, 0, "6"},
        {"-5", 1, 0, "-4"},
        {"+5", 1, 0, "6"},
        {" \t\n\v\f\r12abc", 1, 0, "13"},
        {"0x10", 1, 0, "1"},
        {"007", 1, 0, "8"},
        {"9223372036854775807", 1, 0, "-9223372036854775808"},
        {"-9223372036854775808", -1, 0, "9223372036854775807"},
        {"-9223372036854775808", INT64_MIN, 0, "0"},
        {"9223372036854775808", 1, -EINVAL, "9223372036854775808"},
        {"-9223372036854775809", 1, -EINVAL, "-9223372036854775809"},
        {"99999999999999999999", 1, -EINVAL, "99999999999999999999"},
        {"", 1, -EINVAL, ""},
        {" ", 1, -EINVAL, " "},
        {"-", 1, -EINVAL, "-"},
        {"- 1", 1, -EINVAL, "- 1"},
        {"+-1", 1, -EINVAL, "+-1"},
        {"abc", 1, -EINVAL, "abc"},
    };
    struct store_engine *e = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int64_t sum = 77;
        assert_int_equal(store_set(e, b("n"), b(rows[i].value)), 0);
        assert_int_equal(store_add(e, b("n"), rows[i].delta, &sum), rows[i].rc);
        has_value(e, "n", rows[i].after);
        if (rows[i].rc == 0)
            assert_true(sum == strtoll(rows[i].after, NULL, 10));
    }
}

static void add_makes_the_key_even_with_zero(void **state)
{
    struct store_engine *e = *state;
    int64_t sum;
    assert_int_equal(store_add(e, b("n"), 0, &sum), 0);
    assert_int_equal(sum, 0);
    has_value(e, "n", "0");
}

static void compare_set_answers_and_creates_as_torch_does(void **state)
{
    static const struct {
        const char *value, *expected, *desired, *answer, *after; /* NULL: no such key */
    } rows[] = {
        {NULL, "", "A", "A", "A"}, {NULL, "", "", "", ""},    {NULL, "x", "y", "x", NULL},
        {"A", "A", "B", "B", "B"}, {"B", "A", "C", "B", "B"}, {"B", "", "D", "B", "B"},
        {"", "", "D", "D", "D"},   {"", "x", "D", "", ""},    {"B", "B", "", "", ""},
    };
    struct store_engine *e = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct store_value v;
        bool echo;
        store_delete(e, b("k"));
        if (rows[i].value != NULL)
            assert_int_equal(store_set(e, b("k"), b(rows[i].value)), 0);
        assert_int_equal(
            store_compare_set(e, b("k"), b(rows[i].expected), b(rows[i].desired), &v, &echo), 0);
        struct store_bytes got = echo ? b(rows[i].expected) : store_value_bytes(&v);
        assert_int_equal(got.n, strlen(rows[i].answer));
        if (got.n > 0)
            assert_memory_equal(got.p, rows[i].answer, got.n);
        if (rows[i].after == NULL)
            assert_null(store_get(e, b("k")));
        else
            has_value(e, "k", rows[i].after);
    }
}

/* ---- queues ---- */

static void queues_are_no_keys(void **state)
{
    struct store_engine *e = *state;
    assert_int_equal(store_queue_push(e, b("q"), b("x")), 0);
    assert_int_equal(store_queue_push(e, b("q"), b("")), 0);
    assert_int_equal(store_keys(e), 0);
    assert_null(store_get(e, b("q")));
    assert_true(store_exists(e, b("q")));
    assert_false(store_delete(e, b("q")));
    assert_int_equal(store_set(e, b("q"), b("a value")), 0);
    assert_int_equal(store_queue_len(e, b("q")), 2);
    must_pop(e, "q", "x");
    must_pop(e, "q", "");
    assert_int_equal(store_queue_len(e, b("q")), 0);
    assert_true(store_delete(e, b("q")));
    assert_false(store_exists(e, b("q")));
}

static void push_releases_one_waiter_in_order_of_arrival(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w[3] = {0};
    for (int i = 0; i < 3; i++)
        must_wait(e, &w[i], "q");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_queue_push(e, b("q"), b("x")), 0);
        assert_ptr_equal(store_released(e), &w[i]);
        assert_null(store_released(e));
        store_answered(e, &w[i]);
        must_pop(e, "q", "x");
    }
    /* The first waiter waits for another key now, so a push to this queue does not release it. */
    must_wait(e, &w[0], "other");
    assert_int_equal(store_queue_push(e, b("q"), b("x")), 0);
    assert_null(store_released(e));
    store_cancel(e, &w[0]);
}

static void push_passes_over_who_needs_more(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter both = {0}, one = {0};
    struct store_bytes keys[] = {b("q"), b("k")};
    assert_int_equal(store_wait(e, &both, keys, 2), 1);
    must_wait(e, &one, "q");
    assert_int_equal(store_queue_push(e, b("q"), b("x")), 0);
    assert_ptr_equal(store_released(e), &one);
    assert_null(store_released(e));
    assert_int_equal(store_set(e, b("k"), b("")), 0);
    assert_ptr_equal(store_released(e), &both);
    store_cancel(e, &one);
}

static void item_goes_to_the_next_when_the_called_one_leaves(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w[3] = {0};
    for (int i = 0; i < 3; i++)
        must_wait(e, &w[i], "q");
    assert_int_equal(store_queue_push(e, b("q"), b("x")), 0);
    assert_ptr_equal(store_released(e), &w[0]);
    store_cancel(e, &w[0]); /* times out when it is released */
    assert_ptr_equal(store_released(e), &w[1]);
    store_answered(e, &w[1]);
    must_pop(e, "q", "x");
    store_cancel(e, &w[1]); /* has its item already */
    assert_null(store_released(e));
    store_cancel(e, &w[2]);
}

/* ---- waits ---- */

static void wait_counts_only_what_is_missing_now(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    struct store_bytes ab[] = {b("A"), b("B")}, j[] = {b("J"), b("K"), b("J")};
    assert_int_equal(store_wait(e, &w, NULL, 0), 0);
    assert_int_equal(store_wait(e, &w, ab, 2), 1);
    assert_int_equal(store_set(e, b("A"), b("")), 0);
    assert_true(store_delete(e, b("A")));
    assert_int_equal(store_set(e, b("B"), b("")), 0);
    assert_ptr_equal(store_released(e), &w); /* although A has been deleted */
    assert_false(store_is_waiting(&w));

    assert_int_equal(store_wait(e, &w, j, 3), 1);
    assert_int_equal(store_set(e, b("J"), b("")), 0);
    assert_int_equal(store_set(e, b("J"), b("")), 0);
    assert_null(store_released(e)); /* the second SET of J does not count for K */
    assert_int_equal(store_set(e, b("K"), b("")), 0);
    assert_ptr_equal(store_released(e), &w);
}

static void every_kind_of_write_ends_a_wait(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    struct store_value v;
    bool echo;
    int64_t n;
    must_wait(e, &w, "set");
    assert_int_equal(store_set(e, b("set"), b("")), 0);
    assert_ptr_equal(store_released(e), &w);
    must_wait(e, &w, "add");
    assert_int_equal(store_add(e, b("add"), 0, &n), 0);
    assert_ptr_equal(store_released(e), &w);
    must_wait(e, &w, "append");
    assert_int_equal(store_append(e, b("append"), b("")), 0);
    assert_ptr_equal(store_released(e), &w);
    must_wait(e, &w, "cs");
    assert_int_equal(store_compare_set(e, b("cs"), b("x"), b("y"), &v, &echo), 0);
    assert_null(store_released(e)); /* created no key */
    assert_int_equal(store_compare_set(e, b("cs"), b(""), b("y"), &v, &echo), 0);
    assert_ptr_equal(store_released(e), &w);
    must_wait(e, &w, "barrier");
    struct store_waiter other = {0};
    assert_int_equal(store_barrier(e, &other, b("barrier"), 2), 1);
    assert_ptr_equal(store_released(e), &w);
    assert_null(store_released(e));
    store_cancel(e, &other);
}

static void cancelled_wait_is_never_released(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0}, x = {0};
    must_wait(e, &w, "k");
    must_wait(e, &x, "k");
    store_cancel(e, &w);
    store_cancel(e, &w);
    assert_int_equal(store_waiters(e), 1);
    assert_int_equal(store_set(e, b("k"), b("")), 0);
    store_cancel(e, &x); /* released already */
    assert_null(store_released(e));
    assert_int_equal(store_waiters(e), 0);
}

static void names_that_nobody_waits_for_are_forgotten(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    size_t before = store_engine_account(e)->used;
    for (int i = 0; i < 5000; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "no%d", i);
        must_wait(e, &w, key);
        store_cancel(e, &w);
    }
    assert_int_equal(store_engine_account(e)->used, before);
    assert_false(store_exists(e, b("no1")));
}

static void thousand_waiters_are_released_in_order(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter *w = calloc(MANY, sizeof(*w));
    for (int i = 0; i < MANY; i++)
        must_wait(e, &w[i], "k");
    for (int i = 0; i < MANY; i += 2)
        store_cancel(e, &w[i]);
    assert_int_equal(store_waiters(e), MANY / 2);
    assert_int_equal(store_set(e, b("k"), b("v")), 0);
    for (int i = 1; i < MANY; i += 2)
        assert_ptr_equal(store_released(e), &w[i]);
    assert_null(store_released(e));
    free(w);
}

static void clear_forgets_waiters_without_releasing(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0}, bar = {0}, done = {0}, called = {0};
    must_wait(e, &w, "k");
    assert_int_equal(store_barrier(e, &bar, b("b"), 2), 1);
    must_wait(e, &done, "d");
    assert_int_equal(store_set(e, b("d"), b("")), 0);
    must_wait(e, &called, "q");
    assert_int_equal(store_queue_push(e, b("q"), b("x")), 0);
    store_engine_clear(e);
    assert_null(store_released(e));
    assert_int_equal(store_waiters(e), 0);
    assert_int_equal(store_keys(e), 0);
    assert_false(store_is_waiting(&w) || store_is_waiting(&bar));
    store_cancel(e, &w);
    store_cancel(e, &called);
    must_wait(e, &w, "k");
    assert_int_equal(store_set(e, b("k"), b("")), 0);
    assert_ptr_equal(store_released(e), &w);
}

/* ---- barriers ---- */

static void barrier_releases_all_when_the_last_arrives(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w[3] = {0};
    assert_int_equal(store_barrier(e, &w[0], b("b"), 3), 1);
    assert_int_equal(store_barrier(e, &w[1], b("b"), 3), 1);
    assert_null(store_released(e));
    has_value(e, "b", "2");
    assert_int_equal(store_barrier(e, &w[2], b("b"), 3), 0);
    assert_ptr_equal(store_released(e), &w[0]);
    assert_ptr_equal(store_released(e), &w[1]);
    assert_null(store_released(e));
    assert_int_equal(store_barrier(e, &w[0], b("b"), 3), 0); /* the barrier is not reset */
    has_value(e, "b", "4");
}

static void barrier_counts_those_who_gave_up(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    assert_int_equal(store_barrier(e, &w, b("b"), 2), 1);
    store_cancel(e, &w);
    has_value(e, "b", "1");
    assert_int_equal(store_barrier(e, &w, b("b"), 2), 0);
}

static void barrier_of_one_or_less_passes(void **state)
{
    static const int64_t worlds[] = {1, 0, -1, INT64_MIN};
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        assert_int_equal(store_barrier(e, &w, b("b"), worlds[i]), 0);
        assert_false(store_is_waiting(&w));
    }
    has_value(e, "b", "4");
}

static void barrier_ends_with_a_write_to_its_key(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    struct store_value v;
    bool echo;
    assert_int_equal(store_barrier(e, &w, b("b"), 9), 1);
    assert_int_equal(store_queue_push(e, b("b"), b("x")), 0);
    assert_true(store_delete(e, b("b")));
    assert_null(store_released(e));
    assert_int_equal(store_set(e, b("b"), b("zz")), 0);
    assert_ptr_equal(store_released(e), &w);
    assert_int_equal(store_barrier(e, &w, b("b"), 9), -EINVAL);
    assert_false(store_is_waiting(&w));
    assert_int_equal(store_set(e, b("b"), b("5")), 0);
    assert_int_equal(store_barrier(e, &w, b("b"), 9), 1);
    assert_int_equal(store_compare_set(e, b("b"), b("no"), b("x"), &v, &echo), 0);
    assert_ptr_equal(store_released(e), &w);
}

static void barrier_of_many_is_linear(void **state)
{
    struct store_engine *e = *state;
    enum { WORLD = 100000 };
    struct store_waiter *w = calloc(WORLD, sizeof(*w));
    for (int i = 0; i < WORLD - 1; i++)
        assert_int_equal(store_barrier(e, &w[i], b("b"), WORLD), 1);
    assert_int_equal(store_barrier(e, &w[WORLD - 1], b("b"), WORLD), 0);
    for (int i = 0; i < WORLD - 1; i++)
        assert_ptr_equal(store_released(e), &w[i]);
    free(w);
}

/* ---- the table ---- */

static void table_keeps_all_keys_as_it_grows(void **state)
{
    struct store_engine *e = *state;
    char key[16];
    for (int i = 0; i < 200000; i++) {
        (void)snprintf(key, sizeof(key), "%d", i);
        assert_int_equal(store_set(e, b(key), b(key)), 0);
    }
    for (int i = 0; i < 200000; i++) {
        (void)snprintf(key, sizeof(key), "%d", i);
        has_value(e, key, key);
    }
    assert_int_equal(store_keys(e), 200000);
}

static int count_key(void *arg, struct store_bytes key)
{
    int *seen = arg;
    assert_int_equal(key.n, 1);
    seen[key.p[0]]++;
    return 0;
}

static int stop_at_once(void *arg, struct store_bytes key)
{
    (void)arg;
    (void)key;
    return -EMSGSIZE;
}

static void each_key_sees_keys_only(void **state)
{
    struct store_engine *e = *state;
    struct store_waiter w = {0};
    int seen[256] = {0};
    assert_int_equal(store_set(e, b("a"), b("")), 0);
    assert_int_equal(store_set(e, b("b"), b("")), 0);
    assert_int_equal(store_queue_push(e, b("q"), b("")), 0);
    must_wait(e, &w, "w");
    assert_int_equal(store_each_key(e, count_key, seen), 0);
    assert_int_equal(seen['a'] + seen['b'], 2);
    assert_int_equal(seen['q'] + seen['w'], 0);
    assert_int_equal(store_each_key(e, stop_at_once, NULL), -EMSGSIZE);
    store_cancel(e, &w);
}

/* Src: hash(bytes) of CPython 3.11 (siphash13), whose key is zero with PYTHONHASHSEED=0. */
static void siphash_gives_known_values(void **state)
{
    static const struct {
        const char *key;
        uint64_t hash;
    } rows[] = {
        {"k", UINT64_C(0x342063e11d6c3cad)},
        {"1234567", UINT64_C(0xa33d651594fdae81)},
        {"12345678", UINT64_C(0x3489982430560a87)},
        {"/default_pg/0//cpu//0/3", UINT64_C(0x7f3f579dc9321d0d)},
    };
    (void)state;
    const unsigned char zero[DD_SIPHASH_SEED] = {0}, other[DD_SIPHASH_SEED] = {[15] = 1};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(dd_siphash13(zero, rows[i].key, strlen(rows[i].key)) == rows[i].hash);
        assert_true(dd_siphash13(other, rows[i].key, strlen(rows[i].key)) != rows[i].hash);
    }
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define LARGE(fn) cmocka_unit_test_setup_teardown(fn, setup_large, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(set_refuses_a_value_over_the_limit),
        CASE(full_store_refuses_everything_that_needs_memory),
        CASE(overwriting_does_not_add_up),
        CASE(shared_value_stays_charged_and_unchanged_until_it_is_let_go),
        CASE(keys_are_opaque_bytes),
        CASE(append_makes_the_key_and_grows_it),
        LARGE(append_is_linear),
        CASE(add_reads_what_strtoll_reads),
        CASE(add_makes_the_key_even_with_zero),
        CASE(compare_set_answers_and_creates_as_torch_does),
        CASE(queues_are_no_keys),
        CASE(push_releases_one_waiter_in_order_of_arrival),
        CASE(push_passes_over_who_needs_more),
        CASE(item_goes_to_the_next_when_the_called_one_leaves),
        CASE(wait_counts_only_what_is_missing_now),
        CASE(every_kind_of_write_ends_a_wait),
        CASE(cancelled_wait_is_never_released),
        CASE(names_that_nobody_waits_for_are_forgotten),
        CASE(thousand_waiters_are_released_in_order),
        CASE(clear_forgets_waiters_without_releasing),
        CASE(barrier_releases_all_when_the_last_arrives),
        CASE(barrier_counts_those_who_gave_up),
        CASE(barrier_of_one_or_less_passes),
        CASE(barrier_ends_with_a_write_to_its_key),
        LARGE(barrier_of_many_is_linear),
        LARGE(table_keeps_all_keys_as_it_grows),
        CASE(each_key_sees_keys_only),
        cmocka_unit_test(siphash_gives_known_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
