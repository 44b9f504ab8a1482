/* store/store_relay, store/carried, store/lease: what clients of relays receive, compared with a
 * store without relays, and with what a store may answer while messages are under way. */
#include "relay_world.h"

#include "base/cursor.h"
#include "store/c10d_ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SEEDS = 60, STEPS = 1500, NEAR = 1, FAR = 3 }; /* clients of two nodes */

static struct store_limits limits;

/* ---- requests ---- */

struct text {
    unsigned char p[512];
    size_t n;
};

static void put(struct text *t, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t->p[t->n++] = (unsigned char)(v >> (8 * i));
}

static void put_text(struct text *t, const char *s)
{
    const size_t n = strlen(s);
    put(t, n, 8);
    memcpy(t->p + t->n, s, n);
    t->n += n;
}

/* format: k, v: text; i: number of 8 bytes; u: of 4; #: count */
static struct text request(int op, const char *format, ...)
{
    struct text t = {.p = {(unsigned char)op}, .n = 1};
    va_list ap;
    va_start(ap, format);
    for (const char *f = format; *f != '\0'; f++) {
        if (*f == 'k')
            put_text(&t, va_arg(ap, const char *));
        else
            put(&t, (uint64_t)va_arg(ap, long), *f == 'u' ? 4 : 8);
    }
    va_end(ap);
    return t;
}

#define SEND(w, i, ...)                                                                            \
    do {                                                                                           \
        const struct text request_ = request(__VA_ARGS__);                                         \
        assert_true(world_send(w, i, request_.p, request_.n));                                     \
    } while (0)

#define SET(w, i, key, value) SEND(w, i, C10D_SET, "kk", key, value)
#define GET(w, i, key) SEND(w, i, C10D_GET, "k", key)
#define WAIT(w, i, key) SEND(w, i, C10D_WAIT, "#k", 1L, key)

/* Return what client i has received since the last call, as hex. */
static const char *said(struct world *w, int i)
{
    static char text[4096];
    struct dd_buf *b = &w->clients[i].said;
    text[0] = '\0';
    for (size_t k = 0; k < b->len && k < sizeof(text) / 2 - 1; k++)
        (void)snprintf(text + 2 * k, 3, "%02x", b->data[k]);
    dd_buf_clear(b);
    return text;
}

#define GOT_V "010000000000000076"
#define GOT_W "010000000000000077"

static struct store_relay_stats stats(struct world *w, int node)
{
    struct store_relay_stats s;
    store_relay_stats(w->nodes[node].relay, &s);
    return s;
}

/* Let client 1 wait for and get a key, so that its node has a copy. */
static void copy_to_first_node(struct world *w, const char *key)
{
    WAIT(w, NEAR, key);
    world_settle(w);
    assert_string_equal(said(w, NEAR), "00");
    const uint64_t before = stats(w, 0).forwarded;
    GET(w, NEAR, key);
    assert_string_equal(said(w, NEAR), GOT_V);
    assert_int_equal(stats(w, 0).forwarded, before);
}

static int setup(void **state)
{
    static struct world w;
    store_limits_default(&limits);
    limits.max_bytes = 256 << 20;
    world_start(&w, &limits);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_end(*state);
    return 0;
}

/* ---- one case each ---- */

static void test_gets_of_a_copied_key_do_not_reach_the_store(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    const uint64_t before = w->store.ops_done;
    for (int i = 0; i < 10; i++) {
        WAIT(w, NEAR + 1, "k");
        SEND(w, NEAR + 1, C10D_CHECK, "#k", 1L, "k");
        SEND(w, NEAR + 1, C10D_MULTI_GET, "#kk", 2L, "k", "k");
    }
    world_settle(w);
    assert_int_equal(w->store.ops_done, before);
    assert_int_equal(w->clients[NEAR + 1].said.len, 10 * (1 + 1 + 18));
}

static void test_many_waits_for_a_key_are_one_question(void **state)
{
    struct world *w = *state;
    for (int i = 1; i < WORLD_CLIENTS; i++)
        WAIT(w, i, "k");
    world_settle(w);
    assert_int_equal(w->store.ops_done, 0);
    SET(w, 0, "k", "v");
    for (int i = 1; i < WORLD_CLIENTS; i++)
        assert_string_equal(said(w, i), "");
    world_settle(w);
    for (int i = 1; i < WORLD_CLIENTS; i++)
        assert_string_equal(said(w, i), "00");
    assert_int_equal(w->store.ops_done, 1);
}

static void test_change_waits_until_all_copies_are_gone(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    SET(w, 0, "k", "w");
    GET(w, 0, "k");
    assert_string_equal(said(w, 0), ""); /* the first node might still answer v */
    GET(w, NEAR, "k");
    assert_string_equal(said(w, NEAR), GOT_V);
    GET(w, FAR, "k");
    while (world_deliver(w, 1, true) || world_deliver(w, 1, false))
        ;
    assert_string_equal(said(w, FAR), GOT_V);
    world_settle(w);
    assert_string_equal(said(w, 0), GOT_W);
    GET(w, NEAR, "k");
    world_settle(w);
    assert_string_equal(said(w, NEAR), GOT_W);
}

static void test_key_that_was_changed_gets_no_copies_until_it_is_deleted(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "w");
    WAIT(w, NEAR, "k");
    world_settle(w);
    SET(w, 0, "k", "v");
    world_settle(w);
    (void)said(w, NEAR);
    uint64_t before = stats(w, 0).forwarded;
    WAIT(w, NEAR, "k");
    GET(w, NEAR, "k");
    world_settle(w);
    assert_string_equal(said(w, NEAR), "00" GOT_V);
    assert_int_equal(stats(w, 0).forwarded, before + 2);
}

static void test_client_finds_what_it_has_set(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    SET(w, NEAR, "k", "w");
    GET(w, NEAR, "k");
    world_settle(w);
    assert_string_equal(said(w, NEAR), GOT_W);
}

static void test_deleted_key_is_missing_at_once(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    SEND(w, FAR, C10D_DELETE_KEY, "k", "k");
    world_settle(w);
    assert_string_equal(said(w, FAR), "0100000000000000");
    SEND(w, NEAR, C10D_CHECK, "#k", 1L, "k");
    world_settle(w);
    assert_string_equal(said(w, NEAR), "01");
}

static void test_lost_node_does_not_hold_up_a_change(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    SEND(w, 0, C10D_ADD, "ki", "n", 1L);
    SET(w, 0, "k", "w");
    GET(w, 0, "k");
    (void)said(w, 0);
    store_carrier_reset(w->nodes[0].carrier);
    (void)world_send(w, 0, NULL, 0); /* the loop continues the stalled client */
    assert_string_equal(said(w, 0), GOT_W);
}

static void test_change_before_the_end_of_a_connection_is_made(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    SET(w, FAR, "k", "w");
    world_close(w, FAR);
    world_settle(w);
    GET(w, 0, "k");
    assert_string_equal(said(w, 0), GOT_W);
}

static void test_push_releases_one_waiter_of_many(void **state)
{
    struct world *w = *state;
    size_t woken = 0;
    for (int i = 1; i < WORLD_CLIENTS; i++)
        WAIT(w, i, "q");
    world_settle(w);
    SEND(w, 0, C10D_QUEUE_PUSH, "kk", "q", "v");
    world_settle(w);
    for (int i = 1; i < WORLD_CLIENTS; i++)
        woken += w->clients[i].said.len;
    assert_int_equal(woken, 1);
    for (int i = 1; i < WORLD_CLIENTS; i++) {
        if (w->clients[i].said.len == 0)
            continue;
        (void)said(w, i);
        SEND(w, i, C10D_QUEUE_POP, "k", "q");
        world_settle(w);
        assert_string_equal(said(w, i), "0100000000000000" GOT_V);
    }
}

static void test_cancelled_wait_is_answered_once(void **state)
{
    struct world *w = *state;
    WAIT(w, NEAR, "k");
    SEND(w, NEAR, C10D_CANCEL_WAIT, "");
    SET(w, 0, "k", "v");
    world_settle(w);
    assert_string_equal(said(w, NEAR), "01");
    SET(w, NEAR, "other", "v"); /* this one is at the daemon */
    WAIT(w, NEAR, "missing");
    SEND(w, NEAR, C10D_CANCEL_WAIT, "");
    world_settle(w);
    assert_string_equal(said(w, NEAR), "01");
}

/* Return the bytes of messages from client NEAR's node that are under way. */
static size_t under_way(const struct world *w)
{
    const struct world_msg *m;
    size_t n = 0;
    STAILQ_FOREACH(m, &w->nodes[0].up, link)
    n += m->n;
    return n;
}

static void test_wait_is_cancelled_behind_many_gets(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    SEND(w, NEAR, C10D_WAIT, "#kk", 2L, "a", "b");
    for (int i = 0; i < 20; i++)
        GET(w, NEAR, "k");
    world_settle(w);
    assert_string_equal(said(w, NEAR), "");
    SEND(w, NEAR, C10D_CANCEL_WAIT, "");
    world_settle(w);
    assert_int_equal(w->clients[NEAR].said.len, 20 * 9 + 1);
}

static void test_client_sends_little_behind_a_wait(void **state)
{
    struct world *w = *state;
    enum { N = 20000 };
    SEND(w, NEAR, C10D_WAIT, "#kk", 2L, "a", "b");
    world_settle(w);
    for (int i = 0; i < N; i++)
        SEND(w, NEAR, C10D_ADD, "ki", "n", 1L);
    assert_in_range(under_way(w), 60000, 200000);
    world_settle(w);
    SEND(w, 0, C10D_MULTI_SET, "#kkkk", 2L, "a", "1", "b", "1");
    world_settle(w);
    assert_int_equal(w->clients[NEAR].said.len, 1 + 8 * N);
}

static void test_questions_count_against_the_window(void **state)
{
    struct world *w = *state;
    static char key[401];
    for (int i = 0; i < 40000; i++) {
        (void)snprintf(key, sizeof(key), "%0400d", i);
        WAIT(w, NEAR, key);
        SEND(w, NEAR, C10D_CANCEL_WAIT, "");
    }
    assert_in_range(under_way(w), 4 << 20, 9 << 20);
    world_settle(w);
    assert_int_equal(w->clients[NEAR].said.len, 40000);
}

static void test_large_values_pass_in_both_directions(void **state)
{
    struct world *w = *state;
    enum { MIB = 1 << 20, N = 40 };
    static unsigned char part[MIB];
    struct text t = request(C10D_SET, "ki", "big", (long)N * MIB);
    assert_true(world_send(w, NEAR, t.p, t.n));
    for (int i = 0; i < N; i++) {
        memset(part, i, sizeof(part));
        assert_true(world_send(w, NEAR, part, sizeof(part)));
    }
    GET(w, NEAR, "k");
    world_settle(w);
    GET(w, FAR, "big");
    world_settle(w);
    const struct dd_buf *got = &w->clients[FAR].said;
    assert_int_equal(got->len, N * MIB + 8);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(got->data[8 + i * MIB + 77], i);
}

static void test_next_round_has_nothing_of_the_last(void **state)
{
    struct world *w = *state;
    SET(w, 0, "k", "v");
    copy_to_first_node(w, "k");
    WAIT(w, FAR, "other");
    world_next_round(w);
    world_settle(w);
    SEND(w, NEAR, C10D_CHECK, "#k", 1L, "k");
    SEND(w, NEAR, C10D_GETNUMKEYS, "");
    world_settle(w);
    assert_string_equal(said(w, NEAR), "010000000000000000");
}

/* ---- random histories ---- */

static unsigned long long state_of_rnd;

static unsigned rnd(unsigned n)
{
    state_of_rnd = state_of_rnd * 6364136223846793005ULL + 1442695040888963407ULL;
    return (unsigned)(state_of_rnd >> 33) % n;
}

static struct text random_request(bool *waits)
{
    static const char *const keys[] = {"a", "b", "c", ""};
    static const char *const values[] = {"", "1", "-5", "x", "long, long value"};
    const char *k = keys[rnd(4)], *l = keys[rnd(4)], *v = values[rnd(5)];
    const int kind = (int)rnd(24);
    *waits = kind < 6;
    switch (kind) {
    case 0:
    case 1:
    case 2:
    case 3:
        return request(C10D_WAIT, "#k", 1L, k);
    case 4:
        return request(C10D_WAIT, "#kk", 2L, k, l);
    case 5:
        return request(C10D_BARRIER, "ki", "n", (long)(2 + rnd(40)));
    case 6:
        return request(C10D_COMPARE_SET, "kkk", k, values[rnd(5)], v);
    case 7:
        return request(C10D_ADD, "ki", rnd(2) ? "n" : k, (long)rnd(5) - 2);
    case 8:
    case 9:
        return request(C10D_DELETE_KEY, "k", k);
    case 10:
        return request(C10D_APPEND, "kk", k, v);
    case 11:
        return request(C10D_MULTI_SET, "#kkkk", 2L, k, v, l, "y");
    case 12:
        return request(C10D_MULTI_GET, "#kk", 2L, k, l);
    case 13:
        return request(C10D_CHECK, "#kk", 2L, k, l);
    case 14:
        return request(C10D_GETNUMKEYS, "");
    case 15:
        return request(C10D_CANCEL_WAIT, "");
    case 16:
        return request(C10D_QUEUE_PUSH, "kk", "q", v);
    case 17:
        return request(C10D_QUEUE_POP, "k", "q");
    case 18:
        return request(C10D_PING, "u", (long)rnd(1000));
    case 19:
    case 20:
        return request(C10D_SET, "kk", k, v);
    default:
        return request(C10D_GET, "k", k);
    }
}

/* The same requests to a world with relays and to one whose clients are all connected to the store:
 * when all messages are delivered after each request, every client receives the same bytes. */
static void test_clients_receive_the_same_with_and_without_relays(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        static struct world a, b;
        bool waiting[WORLD_CLIENTS] = {false};
        state_of_rnd = seed;
        world_start(&a, &limits);
        world_start(&b, &limits);
        for (int i = 1; i < WORLD_CLIENTS; i++) { /* the second world has no relays */
            world_close(&b, i);
            c10d_conn_init(&b.clients[i].conn, &b.store);
            store_out_init(&b.clients[i].out, store_engine_account(b.store.engine), 64 << 20);
            b.clients[i].open = true;
            (void)world_send(&b, i, "\x00\xce\xf7\x85\x3c", 5);
        }
        world_settle(&a);
        for (int step = 0; step < STEPS; step++) {
            const int i = (int)rnd(WORLD_CLIENTS);
            bool waits;
            const struct text t = random_request(&waits);
            if (waiting[i] && t.p[0] != C10D_CANCEL_WAIT && t.p[0] != C10D_PING)
                continue;
            if (!a.clients[i].open)
                continue;
            (void)world_send(&a, i, t.p, t.n);
            world_settle(&a);
            (void)world_send(&b, i, t.p, t.n);
            for (int k = 0; k < WORLD_CLIENTS; k++) {
                char ours[4096];
                const bool any = b.clients[k].said.len > 0;
                (void)snprintf(ours, sizeof(ours), "%s", said(&a, k));
                if (strcmp(ours, said(&b, k)) != 0 || a.clients[k].open != b.clients[k].open)
                    fail_msg("seed %u, step %d, operation %d of client %d: client %d", seed, step,
                             t.p[0], i, k);
                if (any && t.p[0] != C10D_PING)
                    waiting[k] = false;
            }
            if (waits)
                waiting[i] = store_is_waiting(&b.clients[i].conn.waiter);
        }
        world_end(&a);
        world_end(&b);
    }
}

/* A counter that clients of all kinds increase and read, while messages are delivered at random: a
 * read returns at least what was complete before it began, and at most what had begun before it
 * ended. */
struct reader {
    bool reads, adds, waits;
    long least, most;
};

static long number(const struct dd_buf *b, size_t at)
{
    struct dd_rd r = dd_rd_of(b->data + at, b->len - at);
    return (long)dd_rd_u64(&r);
}

static void counter_begin(struct world *w, struct reader *v, int i, long done, long *begun)
{
    struct text t;
    dd_buf_clear(&w->clients[i].said);
    v[i] = (struct reader){.least = done};
    if (rnd(12) == 0) {
        t = request(C10D_ADD, "ki", "n", 1L);
        v[i].adds = true;
        ++*begun;
    } else {
        v[i].waits = i > 0 && rnd(2);
        v[i].reads = true;
        t = v[i].waits ? request(C10D_WAIT, "#k", 1L, "n") : request(C10D_GET, "k", "n");
    }
    assert_true(world_send(w, i, t.p, t.n));
}

static void counter_end(struct world *w, struct reader *v, int i, long *done, long begun)
{
    const struct dd_buf *b = &w->clients[i].said;
    if (b->len == 0 || (!v[i].adds && !v[i].reads))
        return;
    if (v[i].adds) {
        const long n = number(b, 0);
        *done = n > *done ? n : *done;
        assert_true(n <= begun);
    } else if (!v[i].waits) {
        const size_t len = (size_t)number(b, 0);
        char text[32] = "0";
        memcpy(text, b->data + 8, len < sizeof(text) ? len : 0);
        const long n = strtol(text, NULL, 10);
        if (n < v[i].least || n > begun)
            fail_msg("client %d read %ld, not %ld to %ld", i, n, v[i].least, begun);
        *done = n > *done ? n : *done; /* later reads must find it, too */
    }
    v[i] = (struct reader){0};
}

static void test_reads_are_current_whatever_is_under_way(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        static struct world w;
        struct reader v[WORLD_CLIENTS] = {{0}};
        long done = 0, begun = 0;
        state_of_rnd = seed;
        world_start(&w, &limits);
        for (int step = 0; step < STEPS * 8; step++) {
            const int i = (int)rnd(WORLD_CLIENTS);
            for (int k = 0; k < WORLD_CLIENTS; k++)
                counter_end(&w, v, k, &done, begun);
            if (rnd(400) == 0 && !v[0].adds &&
                !v[0].reads) { /* a new key: leases are possible again */
                world_settle(&w);
                for (int k = 0; k < WORLD_CLIENTS; k++)
                    counter_end(&w, v, k, &done, begun);
                SEND(&w, 0, C10D_DELETE_KEY, "k", "n");
                world_settle(&w);
                dd_buf_clear(&w.clients[0].said);
                done = begun = 0;
                for (int k = 0; k < WORLD_CLIENTS; k++)
                    v[k].least = 0;
            } else if (rnd(3) > 0) {
                (void)world_deliver(&w, (int)rnd(WORLD_NODES), rnd(2));
            } else if (!v[i].adds && !v[i].reads) {
                counter_begin(&w, v, i, done, &begun);
            }
        }
        world_settle(&w);
        SEND(&w, 0, C10D_ADD, "ki", "n", 1L); /* ends all waits */
        world_settle(&w);
        for (int k = 1; k < WORLD_CLIENTS; k++)
            if ((v[k].adds || v[k].reads) && w.clients[k].said.len == 0)
                fail_msg("seed %u: client %d has no reply (waits %d, adds %d)", seed, k, v[k].waits,
                         v[k].adds);
        world_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        CASE(test_gets_of_a_copied_key_do_not_reach_the_store),
        CASE(test_many_waits_for_a_key_are_one_question),
        CASE(test_change_waits_until_all_copies_are_gone),
        CASE(test_key_that_was_changed_gets_no_copies_until_it_is_deleted),
        CASE(test_client_finds_what_it_has_set),
        CASE(test_deleted_key_is_missing_at_once),
        CASE(test_lost_node_does_not_hold_up_a_change),
        CASE(test_change_before_the_end_of_a_connection_is_made),
        CASE(test_push_releases_one_waiter_of_many),
        CASE(test_cancelled_wait_is_answered_once),
        CASE(test_wait_is_cancelled_behind_many_gets),
        CASE(test_client_sends_little_behind_a_wait),
        CASE(test_questions_count_against_the_window),
        CASE(test_large_values_pass_in_both_directions),
        CASE(test_next_round_has_nothing_of_the_last),
        CASE(test_clients_receive_the_same_with_and_without_relays),
        CASE(test_reads_are_current_whatever_is_under_way),
#undef CASE
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
