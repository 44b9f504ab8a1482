/* libddrun with a real store server; a thread stands for each worker. */
#include "clock_world.h"
#include "lib_world.h"

#include "base/step_page.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The parts of UCC's header that ddrun/ucc.h uses. Src: ucc.h */
typedef enum {
    UCC_OK = 0,
    UCC_INPROGRESS = 1,
    UCC_ERR_NO_MEMORY = -4,
    UCC_ERR_INVALID_PARAM = -3,
    UCC_ERR_NO_MESSAGE = -8,
    UCC_ERR_TIMED_OUT = -10,
} ucc_status_t;
typedef struct {
    ucc_status_t (*allgather)(void *in, void *out, size_t size, void *info, void **request);
    ucc_status_t (*req_test)(void *request);
    ucc_status_t (*req_free)(void *request);
    void *coll_info;
    uint32_t n_oob_eps, oob_ep;
} ucc_oob_coll_t;
#include "ddrun/ucc.h"

enum { N = 6, SHORT_MS = 200 };

#define assert_error(text)                                                                         \
    do {                                                                                           \
        if (strstr(ddrun_error(), text) == NULL)                                                   \
            fail_msg("'%s' says nothing about '%s'", ddrun_error(), text);                         \
    } while (0)

/* A result that a thread records: assertions of cmocka may fail on the main thread only. */
struct seen {
    int rc;
    char said[300];
};

static void note(struct seen *s, int rc)
{
    if (s->rc == 0 && rc < 0) {
        s->rc = rc;
        (void)snprintf(s->said, sizeof(s->said), "%s", ddrun_error());
    }
}

static void assert_all_well(const struct seen *s, int n)
{
    for (int i = 0; i < n; i++)
        if (s[i].rc < 0)
            fail_msg("rank %d: %d, %s", i, s[i].rc, s[i].said);
}

/* ---- without ddrun ---- */

static void *put_late(void *arg)
{
    (void)ddrun_put(arg, "late", "x", 1, LIMIT_MS);
    return NULL;
}

static void lib_is_a_world_of_one_without_ddrun(void **state)
{
    (void)state;
    struct ddrun *d;
    void *value;
    size_t len;
    int64_t sum;
    pthread_t t;
    char out[4] = "";
    const char *keys[] = {"a", "late"};
    world_env(0, 0, 0);
    assert_int_equal(ddrun_init(&d, 0), 0);
    assert_int_equal(ddrun_rank(d) + ddrun_local_rank(d) + ddrun_node_rank(d) + ddrun_round(d) +
                         ddrun_restarts(d),
                     0);
    assert_int_equal(ddrun_size(d) * ddrun_local_size(d) * ddrun_nodes(d), 1);
    assert_int_equal(ddrun_put(d, "a", "value", 5, 0), 0);
    assert_int_equal(ddrun_get(d, "a", &value, &len, 0), 0);
    assert_int_equal(len, 5);
    assert_string_equal(value, "value");
    free(value);
    assert_int_equal(ddrun_get(d, "b", &value, &len, SHORT_MS), -ETIMEDOUT);
    assert_error("get of 'b'");
    assert_int_equal(ddrun_add(d, "a", 3, &sum, 0) + ddrun_add(d, "a", 4, &sum, 0), 0);
    assert_int_equal(sum, 7);
    pthread_create(&t, NULL, put_late, d);
    assert_int_equal(ddrun_wait(d, keys, 2, LIMIT_MS), 0);
    pthread_join(t, NULL);
    assert_int_equal(ddrun_delete(d, "a", 0), 1);
    assert_int_equal(ddrun_delete(d, "a", 0), 0);
    assert_int_equal(ddrun_barrier(d, NULL, 0), 0);
    assert_int_equal(ddrun_allgather(d, NULL, "abc", 4, out, 0), 0);
    assert_string_equal(out, "abc");
    assert_int_equal(ddrun_broadcast(d, NULL, 0, out, 4, 0), 0);
    assert_int_equal(ddrun_heartbeat(d), 0);
    assert_int_equal(ddrun_next_event(d, &(struct ddrun_event){0}, 0), -ETIMEDOUT);
    ddrun_free(d);
    ddrun_free(NULL);
}

static void lib_says_what_is_wrong_with_the_environment(void **state)
{
    (void)state;
    struct ddrun *d;
    world_env(3, 2, 1);
    assert_int_equal(ddrun_init(&d, 0), -EINVAL);
    assert_error("RANK=3 is not below WORLD_SIZE=2");
    setenv("RANK", "x", 1);
    assert_int_equal(ddrun_init(&d, 0), -EINVAL);
    assert_error("RANK='x' is not a number");
    unsetenv("RANK");
    assert_int_equal(ddrun_init(&d, 0), -EINVAL);
    assert_error("RANK is not set");
    setenv("RANK", "0", 1);
    unsetenv("MASTER_ADDR");
    assert_int_equal(ddrun_init(&d, 0), -EINVAL);
    assert_error("MASTER_ADDR is not set");
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "many", 1);
    assert_int_equal(ddrun_init(&d, 0), -EINVAL);
    assert_error("MASTER_PORT=many");
    world_env(0, 0, 0);
}

/* ---- keys and values ---- */

static void lib_shares_values_with_all_workers(void **state)
{
    (void)state;
    struct ddrun *d[2];
    struct world *w = world_new(2, d);
    void *value;
    size_t len;
    int64_t sum;
    assert_int_equal(ddrun_rank(d[1]), 1);
    assert_int_equal(ddrun_local_rank(d[1]), 1);
    assert_int_equal(ddrun_round(d[1]), 4);
    assert_int_equal(ddrun_restarts(d[1]), 1);
    assert_int_equal(ddrun_put(d[0], "k", "\0\1", 2, LIMIT_MS), 0);
    assert_int_equal(ddrun_put(d[0], "empty", NULL, 0, LIMIT_MS), 0);
    assert_int_equal(ddrun_get(d[1], "k", &value, &len, LIMIT_MS), 0);
    assert_int_equal(len, 2);
    assert_memory_equal(value, "\0\1", 3);
    free(value);
    assert_int_equal(ddrun_get(d[1], "empty", &value, &len, 0), 0);
    assert_int_equal(len, 0);
    free(value);
    assert_int_equal(ddrun_get(d[1], "none", &value, &len, 0), -ETIMEDOUT);
    assert_int_equal(ddrun_get(d[1], "none", &value, &len, SHORT_MS), -ETIMEDOUT);
    assert_error("get of 'none': timed out");
    assert_int_equal(ddrun_add(d[0], "k", 2, NULL, LIMIT_MS), 0); /* a counter, not the value 'k' */
    assert_int_equal(ddrun_add(d[1], "k", -5, &sum, LIMIT_MS), 0);
    assert_int_equal(sum, -3);
    assert_int_equal(ddrun_delete(d[1], "k", LIMIT_MS), 1);
    assert_int_equal(ddrun_delete(d[0], "k", LIMIT_MS), 0);
    const char *both[] = {"empty", "k"};
    assert_int_equal(ddrun_wait(d[0], both, 1, LIMIT_MS), 0);
    assert_int_equal(ddrun_wait(d[0], both, 2, 0), -ETIMEDOUT);
    assert_int_equal(ddrun_wait(d[0], both, 0, 0), 0);
    struct store_stats s;
    world_stats(w, &s);
    assert_int_equal(s.conns, 2); /* cancelled waits keep their connection */
    world_free(w);
}

static void lib_refuses_what_the_store_would_not_take(void **state)
{
    (void)state;
    struct ddrun *d[1];
    struct world *w = world_new(1, d);
    char *key = calloc(1, DDRUN_KEY_MAX + 2);
    memset(key, 'k', DDRUN_KEY_MAX + 1);
    assert_int_equal(ddrun_put(d[0], key, "", 0, LIMIT_MS), -EINVAL);
    key[DDRUN_KEY_MAX] = '\0';
    assert_int_equal(ddrun_put(d[0], key, "", 0, LIMIT_MS), 0);
    assert_int_equal(ddrun_put(d[0], "", "", 0, LIMIT_MS), -EINVAL);
    assert_int_equal(ddrun_put(d[0], "k", key, (size_t)DDRUN_VALUE_MAX + 1, LIMIT_MS), -EMSGSIZE);
    assert_int_equal(ddrun_wait(d[0], NULL, -1, LIMIT_MS), -EINVAL);
    free(key);
    world_free(w);
}

static void lib_takes_the_longest_value(void **state)
{
    (void)state;
    struct ddrun *d[1];
    struct world *w = world_new(1, d);
    char *value = malloc(DDRUN_VALUE_MAX);
    void *back;
    size_t len;
    for (size_t i = 0; i < DDRUN_VALUE_MAX; i += 4096)
        memset(value + i, (int)(i / 4096 % 251), 4096);
    assert_int_equal(ddrun_put(d[0], "long", value, DDRUN_VALUE_MAX, LIMIT_MS), 0);
    assert_int_equal(ddrun_get(d[0], "long", &back, &len, LIMIT_MS), 0);
    assert_int_equal(len, DDRUN_VALUE_MAX);
    assert_true(memcmp(value, back, len) == 0);
    free(value);
    free(back);
    world_free(w);
}

static void *get_late(void *arg)
{
    void *value = NULL;
    (void)ddrun_get(arg, "late", &value, NULL, LIMIT_MS);
    return value;
}

static void lib_lets_a_thread_put_what_another_waits_for(void **state)
{
    (void)state;
    struct ddrun *d[1];
    struct world *w = world_new(1, d);
    struct store_stats s;
    pthread_t t;
    void *value = NULL;
    pthread_create(&t, NULL, get_late, d[0]);
    do
        world_stats(w, &s);
    while (s.waiters == 0);
    assert_int_equal(ddrun_put(d[0], "late", "now", 3, LIMIT_MS), 0);
    pthread_join(t, &value);
    assert_string_equal(value, "now");
    free(value);
    world_free(w);
}

/* ---- collectives ---- */

enum { TURNS = 300 };

static int gather_all_sizes(struct ddrun *d, struct ddrun_group *g, int turn)
{
    char mine[64];
    int n = ddrun_group_size(d, g), me = ddrun_group_rank(d, g);
    struct ddrun_piece *v = NULL;
    memset(mine, 'a' + me, sizeof(mine));
    int rc = ddrun_allgatherv(d, g, mine, (size_t)((me + turn) % 40), &v, LIMIT_MS);
    for (int i = 0; rc == 0 && i < n; i++) {
        const char *p = v[i].data;
        if (v[i].len != (size_t)((i + turn) % 40) || p[v[i].len] != '\0' ||
            ((uintptr_t)p & 15) != 0)
            rc = -EBADMSG;
        for (size_t k = 0; rc == 0 && k < v[i].len; k++)
            rc = p[k] == 'a' + i ? 0 : -EBADMSG;
    }
    free(v);
    return rc;
}

static void take_turns(struct ddrun *d, void *arg)
{
    static const int odd[] = {5, 1, 3}, even[] = {0, 2, 4};
    struct seen *s = arg;
    struct ddrun_group *g = NULL, *again = NULL;
    int out[N], rank = ddrun_rank(d);
    bool is_odd = rank % 2 == 1;
    note(s, ddrun_group(d, &g, is_odd ? "odd" : "even", is_odd ? odd : even, N / 2));
    note(s, ddrun_group(d, &again, is_odd ? "odd" : "even", is_odd ? odd : even, N / 2));
    note(s, g != NULL && g == again ? 0 : -EBADMSG);
    for (int turn = 0; turn < TURNS && s->rc == 0; turn++) {
        int value = rank * TURNS + turn,
            told = ddrun_group_rank(d, g) == turn % 3 ? 1000 + turn : 0;
        note(s, ddrun_barrier(d, NULL, LIMIT_MS));
        note(s, ddrun_allgather(d, NULL, &value, sizeof(value), out, LIMIT_MS));
        for (int i = 0; i < N && s->rc == 0; i++)
            note(s, out[i] == i * TURNS + turn ? 0 : -EBADMSG);
        note(s, gather_all_sizes(d, g, turn));
        note(s, ddrun_broadcast(d, g, turn % 3, &told, sizeof(told), LIMIT_MS));
        note(s, told == 1000 + turn ? 0 : -EBADMSG);
    }
}

static void lib_keeps_worlds_and_groups_in_step_and_the_store_small(void **state)
{
    (void)state;
    struct ddrun *d[N];
    struct seen s[N] = {0};
    struct store_stats stats;
    struct world *w = world_new(N, d);
    world_run(d, N, take_turns, s, sizeof(s[0]));
    assert_all_well(s, N);
    world_stats(w, &stats);
    /* one hello per rank; each collective: append, arrive and get per rank, two deletes by the
     * first */
    assert_in_range(stats.ops, 0, TURNS * 4 * (N * 3 + 3 * 2) + N);
    assert_in_range(stats.keys, 0,
                    9); /* three groups, each with the keys of its last two collectives */
    assert_int_equal(stats.conns, N);
    world_free(w);
}

enum { LONG = 200 * 1000 };

static void gather_much(struct ddrun *d, void *arg)
{
    struct seen *s = arg;
    int rank = ddrun_rank(d);
    size_t len = (size_t)(rank % 2 == 0 ? LONG + rank : rank); /* even ranks: stored apart */
    char *mine = malloc(len + 1);
    memset(mine, 'a' + rank, len);
    for (int turn = 0; turn < 5 && s->rc == 0; turn++) {
        struct ddrun_piece *v = NULL;
        note(s, ddrun_allgatherv(d, NULL, mine, len, &v, LIMIT_MS));
        for (int i = 0; i < N && s->rc == 0; i++) {
            const char *p = v[i].data;
            bool right = v[i].len == (size_t)(i % 2 == 0 ? LONG + i : i) &&
                         (i == 0 || (p[0] == 'a' + i && p[v[i].len - 1] == 'a' + i)) &&
                         p[v[i].len] == '\0';
            note(s, right ? 0 : -EBADMSG);
        }
        free(v);
    }
    for (int turn = 0; turn < 3; turn++)
        note(s, ddrun_barrier(d, NULL, LIMIT_MS));
    free(mine);
}

static void lib_gathers_what_is_long_and_forgets_it(void **state)
{
    (void)state;
    struct ddrun *d[N];
    struct seen s[N] = {0};
    struct store_stats stats;
    struct world *w = world_new(N, d);
    world_run(d, N, gather_much, s, sizeof(s[0]));
    assert_all_well(s, N);
    world_stats(w, &stats);
    assert_in_range(stats.keys, 0, 3);
    assert_in_range(stats.bytes, 0, LONG);
    world_free(w);
}

static void lib_names_who_has_not_come_and_goes_on(void **state)
{
    (void)state;
    struct ddrun *d[N];
    struct seen s[N] = {0};
    struct world *w = world_new(N, d);
    assert_int_equal(ddrun_barrier(d[0], NULL, SHORT_MS), -ETIMEDOUT);
    assert_error("barrier: timed out waiting for ranks 1 2 3 4 5");
    for (int i = 1; i < N - 1; i++)
        assert_int_equal(ddrun_barrier(d[i], NULL, SHORT_MS), -ETIMEDOUT);
    assert_error("barrier: timed out waiting for rank 5");
    assert_int_equal(ddrun_barrier(d[5], NULL, LIMIT_MS), 0); /* the others have arrived already */
    world_run(d, N, gather_much, s, sizeof(s[0]));
    assert_all_well(s, N);
    world_free(w);
}

static void give_other_sizes(struct ddrun *d, void *arg)
{
    struct seen *s = arg;
    char out[N * 8];
    note(s, ddrun_allgather(d, NULL, "1234567", ddrun_rank(d) == 2 ? 5 : 8, out, LIMIT_MS));
}

static void lib_tells_sizes_that_differ(void **state)
{
    (void)state;
    struct ddrun *d[N];
    struct seen s[N] = {0};
    struct world *w = world_new(N, d);
    world_run(d, N, give_other_sizes, s, sizeof(s[0]));
    for (int i = 0; i < N; i++)
        assert_int_equal(s[i].rc, -EMSGSIZE);
    assert_string_equal(s[0].said, "allgather: rank 2 contributed 5 bytes, this rank 8");
    world_free(w);
}

static void lib_refuses_groups_that_cannot_be(void **state)
{
    (void)state;
    struct ddrun *d[2];
    struct ddrun_group *g;
    struct world *w = world_new(2, d);
    const struct {
        const char *name;
        int ranks[3], n;
        const char *said;
    } rows[] = {
        {"a", {1}, 1, "does not contain this rank (0)"},
        {"a", {0, 0}, 2, "contains rank 0 more than once"},
        {"a", {0, 2}, 2, "rank 2"},
        {"a", {-1, 0}, 2, "rank -1"},
        {"a", {0, 1, 0}, 3, "expected 1 to 2"},
        {"a", {0}, 0, "expected 1 to 2"},
        {"", {0}, 1, "the name of a group"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(ddrun_group(d[0], &g, rows[i].name, rows[i].ranks, rows[i].n), -EINVAL);
        assert_error(rows[i].said);
    }
    assert_int_equal(ddrun_broadcast(d[0], NULL, 2, NULL, 0, 0), -EINVAL);
    world_free(w);
}

static void lib_gathers_without_waiting(void **state)
{
    (void)state;
    struct ddrun *d[3];
    struct ddrun_request *r[3] = {0};
    struct ddrun_piece *v;
    struct world *w = world_new(3, d);
    assert_int_equal(ddrun_allgatherv_begin(d[0], NULL, "a", 1, &r[0]), 0);
    assert_int_equal(ddrun_test(r[0], &v), 0);
    assert_int_equal(ddrun_barrier(d[0], NULL, 0), -EBUSY);
    assert_error("another collective of this group");
    for (int i = 1; i < 3; i++)
        assert_int_equal(ddrun_allgatherv_begin(d[i], NULL, i == 1 ? "b" : "c", 1, &r[i]), 0);
    for (int i = 0; i < 3; i++) {
        int rc;
        while ((rc = ddrun_test(r[i], &v)) == 0)
            ;
        assert_int_equal(rc, 1);
        for (int k = 0; k < 3; k++)
            assert_int_equal(*(const char *)v[k].data, 'a' + k);
        free(v);
        assert_int_equal(ddrun_test(r[i], NULL), 1); /* may be repeated */
        ddrun_request_free(r[i]);
    }
    assert_int_equal(ddrun_allgatherv_begin(d[0], NULL, "", 0, &r[0]), 0);
    ddrun_request_free(r[0]); /* cancelled: the group is no longer busy */
    assert_int_equal(ddrun_barrier(d[0], NULL, SHORT_MS), -ETIMEDOUT);
    ddrun_request_free(NULL);
    world_free(w);
}

static void lib_gathers_for_ucc(void **state)
{
    (void)state;
    struct ddrun *d[3];
    struct ddrun_ucc u[3];
    ucc_oob_coll_t oob[3];
    void *request[3];
    char out[3][9];
    struct world *w = world_new(3, d);
    for (int i = 2; i >= 0; i--) {
        char mine[3] = {'a', 'b', (char)('0' + i)};
        ddrun_ucc_oob(&u[i], d[i], NULL, &oob[i]);
        assert_int_equal(oob[i].n_oob_eps, 3);
        assert_int_equal(oob[i].oob_ep, i);
        assert_int_equal(oob[i].allgather(mine, out[i], 3, oob[i].coll_info, &request[i]), UCC_OK);
        if (i > 0)
            assert_int_equal(oob[i].req_test(request[i]), UCC_INPROGRESS);
    }
    for (int i = 0; i < 3; i++) {
        ucc_status_t s;
        while ((s = oob[i].req_test(request[i])) == UCC_INPROGRESS)
            ;
        assert_int_equal(s, UCC_OK);
        assert_memory_equal(out[i], "ab0ab1ab2", 9);
        assert_int_equal(oob[i].req_free(request[i]), UCC_OK);
    }
    assert_int_equal(oob[0].allgather(out[0], out[1], 3, oob[0].coll_info, &request[0]), UCC_OK);
    world_reset(w);
    while (oob[0].req_test(request[0]) == UCC_INPROGRESS)
        ;
    assert_int_equal(oob[0].req_test(request[0]), UCC_ERR_NO_MESSAGE);
    (void)oob[0].req_free(request[0]);
    world_free(w);
}

/* ---- ends ---- */

static void wait_in_vain(struct ddrun *d, void *arg)
{
    struct seen *s = arg;
    void *value;
    if (ddrun_rank(d) == 0)
        note(s, ddrun_get(d, "never", &value, NULL, DDRUN_FOREVER));
    else
        note(s, ddrun_barrier(d, NULL, DDRUN_FOREVER));
}

struct end {
    struct world *w;
    void (*fn)(struct world *w);
    uint64_t waiters;
};

static void *end_it(void *arg)
{
    struct end *e = arg;
    struct store_stats s;
    do
        world_stats(e->w, &s);
    while (s.waiters < e->waiters);
    e->fn(e->w);
    return NULL;
}

static void lib_ends_all_waits(void (*how)(struct world *))
{
    struct ddrun *d[3];
    struct seen s[3] = {0};
    struct end e = {.w = world_new(3, d), .fn = how, .waiters = 2};
    pthread_t t;
    pthread_create(&t, NULL, end_it, &e);
    world_run(d, 2, wait_in_vain, s, sizeof(s[0])); /* rank 2 does not take part */
    pthread_join(t, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(s[i].rc, -ECANCELED);
        assert_non_null(strstr(s[i].said, "this round is over"));
        assert_int_equal(ddrun_put(d[i], "k", "", 0, LIMIT_MS), -ECANCELED);
    }
    assert_int_equal(ddrun_barrier(d[2], NULL, LIMIT_MS), -ECANCELED); /* its first wait */
    world_free(e.w);
}

static void lib_ends_waits_when_the_round_is_over(void **state)
{
    (void)state;
    lib_ends_all_waits(world_reset);
}

/* Move the clock past the attempts to connect. */
static void *hurry(void *stop)
{
    while (!atomic_load((atomic_bool *)stop)) {
        (void)usleep(1000);
        clock_skip(CLOCK_STEP_MS);
    }
    return NULL;
}

/* Even calls without timeout fail, and do not wait: the daemon listens before there are workers. */
static void lib_says_that_the_daemon_is_gone(void **state)
{
    (void)state;
    atomic_bool stop = false;
    pthread_t clock;
    struct ddrun *d[2];
    struct ddrun *late = NULL;
    struct ddrun_request *r = NULL;
    struct world *w = world_new(2, d);
    size_t len;
    void *value = NULL;
    assert_int_equal(ddrun_allgatherv_begin(d[0], NULL, "a", 1, &r),
                     0); /* uses the only connection */
    world_hang_up(w);
    pthread_create(&clock, NULL, hurry, &stop);
    assert_int_equal(ddrun_get(d[0], "k", &value, &len, DDRUN_FOREVER), -ECANCELED);
    assert_int_equal(ddrun_add(d[0], "k", 1, NULL, DDRUN_FOREVER), -ECANCELED);
    ddrun_request_free(r);
    world_env(1, 2, world_port(w));
    assert_int_equal(ddrun_init(&late, DDRUN_FOREVER), -ECONNREFUSED);
    assert_non_null(strstr(ddrun_error(), "connection refused; nothing listens there"));
    atomic_store(&stop, true);
    pthread_join(clock, NULL);
    world_free(w);
}

static void lib_ends_waits_that_nobody_can_end(void **state)
{
    (void)state;
    lib_ends_all_waits(world_end_waits);
}

static void lib_tells_events_once_and_in_order(void **state)
{
    (void)state;
    struct ddrun *d[2];
    struct ddrun_event e;
    struct world *w = world_new(2, d);
    assert_int_equal(ddrun_next_event(d[0], &e, 0), -ETIMEDOUT);
    world_set(w, "ddrun/4/event/0", "signal 10");
    world_set(w, "ddrun/4/event/1", "eclipse 1"); /* an event of a later version */
    world_set(w, "ddrun/4/event/2", "stop 15");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ddrun_next_event(d[i], &e, LIMIT_MS), 0);
        assert_int_equal(e.kind, DDRUN_EVENT_SIGNAL);
        assert_int_equal(e.signal, 10);
        assert_int_equal(ddrun_next_event(d[i], &e, LIMIT_MS), 0);
        assert_int_equal(e.kind, DDRUN_EVENT_STOP);
        assert_int_equal(e.signal, 15);
        assert_int_equal(ddrun_next_event(d[i], &e, SHORT_MS), -ETIMEDOUT);
    }
    world_free(w);
}

static void lib_gives_signs_of_life(void **state)
{
    (void)state;
    char path[] = "/tmp/ddrun-beat-XXXXXX";
    struct stat st;
    struct ddrun *d;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(futimens(fd, old), 0);
    world_env(0, 0, 0);
    setenv("DDRUN_HEARTBEAT_FILE", path, 1);
    assert_int_equal(ddrun_init(&d, 0), 0);
    assert_int_equal(ddrun_heartbeat(d), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_true(st.st_mtim.tv_sec > 1000);
    unlink(path);
    close(fd);
    assert_int_equal(ddrun_heartbeat(d), -ENOENT);
    assert_error(path);
    ddrun_free(d);
    unsetenv("DDRUN_HEARTBEAT_FILE");
}

static void lib_touches_what_it_has_inherited_where_the_path_leads_nowhere(void **state)
{
    (void)state;
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct stat st;
    struct ddrun *d;
    char number[16];
    world_env(0, 0, 0);
    setenv("DDRUN_HEARTBEAT_FILE", "/proc/nobody/fd/9", 1);
    for (int ours = 0; ours < 2; ours++) { /* a descriptor of another file is not touched */
        int fd = memfd_create(ours ? "ddrun-heartbeat" : "something", 0);
        assert_true(fd >= 3 && futimens(fd, old) == 0);
        (void)snprintf(number, sizeof(number), "%d", fd);
        setenv("DDRUN_HEARTBEAT_FD", number, 1);
        assert_int_equal(ddrun_init(&d, 0), 0);
        assert_int_equal(ddrun_heartbeat(d), ours ? 0 : -ENOENT);
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(st.st_mtim.tv_sec > 1000, ours);
        ddrun_free(d);
        close(fd);
    }
    unsetenv("DDRUN_HEARTBEAT_FD");
    unsetenv("DDRUN_HEARTBEAT_FILE");
}

static void lib_writes_the_times_of_steps_where_ddrun_reads_them(void **state)
{
    (void)state;
    struct ddrun *d;
    struct step_times t;
    struct step_page page;
    char text[80];
    world_env(0, 0, 0);
    for (int ours = 0; ours < 2; ours++) { /* it writes to no other file */
        int fd = memfd_create(ours ? "ddrun-steps" : "something", 0);
        assert_true(fd >= 0 && ftruncate(fd, 2 * STEP_PAGE_BYTES) == 0);
        (void)snprintf(text, sizeof(text), "1:/proc/self/fd/%d", fd);
        setenv("DDRUN_STEPS", text, 1);
        assert_int_equal(ddrun_init(&d, 0), 0);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(ddrun_step(d, i), 0);
            assert_int_equal(ddrun_step_wait(d), 0);
            assert_int_equal(ddrun_step_resume(d), 0);
        }
        assert_int_equal(ddrun_step(d, -1), -EINVAL);
        ddrun_free(d);
        assert_int_equal(pread(fd, &page, sizeof(page), STEP_PAGE_BYTES), sizeof(page));
        assert_int_equal(step_page_read(&page, sizeof(page), &t), ours);
        close(fd);
    }
    assert_true(t.count == 3 && t.step == 3 && t.work_us > 0);
    static const char *const bad[] = {"",
                                      ":",
                                      "1",
                                      "1:",
                                      "x:/dev/null",
                                      "0:/dev/null",
                                      "-1:/dev/null",
                                      "99999999999999:/x",
                                      "2:/nosuch"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("DDRUN_STEPS", bad[i], 1);
        assert_int_equal(ddrun_init(&d, 0), 0);
        assert_int_equal(ddrun_step(d, 1), 0);
        ddrun_free(d);
    }
    unsetenv("DDRUN_STEPS");
}

static void lib_is_not_for_a_child(void **state)
{
    (void)state;
    struct ddrun *d[2];
    struct ddrun_group *g;
    int status;
    const int ranks[] = {0};
    struct world *w = world_new(2, d);
    pid_t pid = fork();
    if (pid == 0) {
        bool right = ddrun_put(d[0], "k", "", 0, 0) == -EPERM &&
                     ddrun_barrier(d[0], NULL, 0) == -EPERM &&
                     ddrun_group(d[0], &g, "g", ranks, 1) == -EPERM;
        ddrun_free(d[0]);
        _exit(right ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(ddrun_put(d[0], "k", "", 0, LIMIT_MS),
                     0); /* the parent's connection still works */
    world_free(w);
}

/* ---- other servers at the store's address ---- */

struct stranger {
    int listener, port;
    const char *says; /* NULL: sends nothing and keeps the connection open */
    size_t len;
};

static void *be_strange(void *arg)
{
    struct stranger *x = arg;
    char hello[64];
    int fd = accept(x->listener, NULL, NULL);
    ssize_t n = recv(fd, hello, sizeof(hello), 0);
    if (x->says != NULL)
        (void)send(fd, x->says, x->len, MSG_NOSIGNAL);
    else
        n = recv(fd, hello, sizeof(hello), 0); /* until the worker disconnects */
    close(fd);
    return (void *)n;
}

static void lib_is_not_misled_by_what_is_no_store(void **state)
{
    (void)state;
    const struct {
        const char *says;
        size_t len;
        int rc;
        const char *error;
    } rows[] = {
        {"HTTP/1.1 400\r\n", 14, -EPROTO, "is not a store of ddrun"},
        {"", 0, -EACCES, "only workers of its own job"},
        {NULL, 0, -ETIMEDOUT, "cannot reach the store"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        socklen_t len = sizeof(a);
        struct stranger x = {
            .listener = socket(AF_INET, SOCK_STREAM, 0), .says = rows[i].says, .len = rows[i].len};
        struct ddrun *d;
        pthread_t t;
        assert_int_equal(bind(x.listener, (struct sockaddr *)(void *)&a, len), 0);
        assert_int_equal(listen(x.listener, 8), 0);
        assert_int_equal(getsockname(x.listener, (struct sockaddr *)(void *)&a, &len), 0);
        pthread_create(&t, NULL, be_strange, &x);
        world_env(0, 2, ntohs(a.sin_port));
        assert_int_equal(ddrun_init(&d, rows[i].says != NULL ? LIMIT_MS : SHORT_MS), rows[i].rc);
        assert_error(rows[i].error);
        pthread_join(t, NULL);
        close(x.listener);
    }
    world_env(0, 0, 0);
}

static void lib_gives_up_where_nobody_listens(void **state)
{
    (void)state;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    struct ddrun *d;
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* bound: no other process listens there */
    assert_int_equal(bind(fd, (struct sockaddr *)(void *)&a, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&a, &len), 0);
    world_env(0, 2, ntohs(a.sin_port));
    assert_int_equal(ddrun_init(&d, SHORT_MS), -ECONNREFUSED);
    assert_error("cannot reach the store of this round at 127.0.0.1 port");
    close(fd);
    world_env(0, 0, 0);
}

static void lib_has_a_sentence_for_every_code(void **state)
{
    (void)state;
    assert_string_equal(ddrun_strerror(0), "no error");
    assert_string_equal(ddrun_strerror(-ETIMEDOUT), "timed out");
    assert_string_equal(ddrun_strerror(-ENOSPC), strerror(ENOSPC));
    assert_string_equal(ddrun_strerror(5), "not an error code of libddrun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lib_is_a_world_of_one_without_ddrun),
        cmocka_unit_test(lib_says_what_is_wrong_with_the_environment),
        cmocka_unit_test(lib_shares_values_with_all_workers),
        cmocka_unit_test(lib_refuses_what_the_store_would_not_take),
        cmocka_unit_test(lib_takes_the_longest_value),
        cmocka_unit_test(lib_lets_a_thread_put_what_another_waits_for),
        cmocka_unit_test(lib_keeps_worlds_and_groups_in_step_and_the_store_small),
        cmocka_unit_test(lib_gathers_what_is_long_and_forgets_it),
        cmocka_unit_test(lib_names_who_has_not_come_and_goes_on),
        cmocka_unit_test(lib_tells_sizes_that_differ),
        cmocka_unit_test(lib_refuses_groups_that_cannot_be),
        cmocka_unit_test(lib_gathers_without_waiting),
        cmocka_unit_test(lib_gathers_for_ucc),
        cmocka_unit_test(lib_ends_waits_when_the_round_is_over),
        cmocka_unit_test(lib_says_that_the_daemon_is_gone),
        cmocka_unit_test(lib_ends_waits_that_nobody_can_end),
        cmocka_unit_test(lib_tells_events_once_and_in_order),
        cmocka_unit_test(lib_gives_signs_of_life),
        cmocka_unit_test(lib_touches_what_it_has_inherited_where_the_path_leads_nowhere),
        cmocka_unit_test(lib_writes_the_times_of_steps_where_ddrun_reads_them),
        cmocka_unit_test(lib_is_not_for_a_child),
        cmocka_unit_test(lib_is_not_misled_by_what_is_no_store),
        cmocka_unit_test(lib_gives_up_where_nobody_listens),
        cmocka_unit_test(lib_has_a_sentence_for_every_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
