/* ddrun/nccl.h: the ids that each rank creates, their exchange, and the calls of NCCL. Functions of
 * this test replace the library; tests/e2e/test_lib.py covers the search for it. */
#include "clock_world.h"
#include "ddrun/nccl.h"
#include "lib_world.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

enum { MANY = 300, FEW = 4 };

static struct ddrun *d[MANY];

/* ---- arithmetic ---- */

/* NCCL's split: consecutive blocks, the first ones longer by one rank. Src: NCCL 2.23 to 2.30 */
static void nccl_ids_are_made_by_the_first_rank_of_each_block(void **state)
{
    (void)state;
    for (int n = 1; n <= 400; n += n < 20 ? 1 : 19)
        for (int nids = 1; nids <= n; nids++) {
            int rank = 0;
            for (int k = 0; k < nids; k++) {
                int size = n / nids + (k < n % nids);
                for (int i = 0; i < size; i++, rank++)
                    if (ddrun_nccl_id_of(rank, n, nids) != (i == 0 ? k : -1))
                        fail_msg("rank %d of %d with %d ids", rank, n, nids);
            }
            assert_int_equal(rank, n);
        }
}

static void nccl_has_an_id_for_every_128_ranks(void **state)
{
    (void)state;
    assert_int_equal(ddrun_nccl_ids_for(1, 0), 1);
    assert_int_equal(ddrun_nccl_ids_for(128, 0), 1);
    assert_int_equal(ddrun_nccl_ids_for(129, 0), 2);
    assert_int_equal(ddrun_nccl_ids_for(300, 0), 3);
    assert_int_equal(ddrun_nccl_ids_for(100000, 0), 782);
    assert_int_equal(ddrun_nccl_ids_for(300, 1), 300);
}

/* ---- a fake library ---- */

/* Calls of the library by rank; each rank is a thread. */
static struct call {
    char made[140];    /* id that the rank created; "": none */
    int ids, blocking; /* -1: no config */
    char with[200];    /* the beginnings of the ids */
    int inits, aborts, looks;
} calls[MANY];
static int fails_on, fails_times, busy_looks;
static _Atomic int still_to_look; /* ranks; the last one moves the clock to the time limit */
static _Thread_local int me;

static int get_version(int *version)
{
    *version = 22602;
    return 0;
}

static int get_unique_id(struct ddrun_nccl_id *id)
{
    static int made;
    memset(id, 0, sizeof(*id));
    (void)snprintf(id->internal, sizeof(id->internal), "%d.%d", me,
                   __atomic_add_fetch(&made, 1, __ATOMIC_SEQ_CST));
    memcpy(calls[me].made, id->internal, sizeof(id->internal));
    return 0;
}

static int init(void **comm, int n, const struct ddrun_nccl_id *ids, int nids, const void *config)
{
    struct call *c = &calls[me];
    assert(n > 0);
    *comm = c;
    c->ids = nids;
    c->blocking = config == NULL ? -1 : ((const struct ddrun_nccl_config_ *)config)->blocking;
    c->with[0] = '\0';
    for (int i = 0; i < nids; i++)
        (void)snprintf(c->with + strlen(c->with), sizeof(c->with) - strlen(c->with), "%s ",
                       ids[i].internal);
    c->inits++;
    c->looks = 0;
    if (me == fails_on && c->inits <= fails_times)
        return 2;
    return busy_looks > 0 ? DDRUN_NCCL_IN_PROGRESS : 0;
}

static int init_rank(void **comm, int n, struct ddrun_nccl_id id, int rank)
{
    assert(rank == me);
    return init(comm, n, &id, 1, NULL);
}

static int init_config(void **comm, int n, struct ddrun_nccl_id id, int rank, void *config)
{
    assert(rank == me);
    return init(comm, n, &id, 1, config);
}

static int init_scalable(void **comm, int n, int rank, int nids, struct ddrun_nccl_id *ids,
                         void *config)
{
    assert(rank == me);
    return init(comm, n, ids, nids, config);
}

static int async_error(void *comm, int *result)
{
    struct call *c = comm;
    if (c->looks == 0 && atomic_fetch_sub(&still_to_look, 1) == 1)
        clock_skip(LIMIT_MS);
    *result = ++c->looks < busy_looks ? DDRUN_NCCL_IN_PROGRESS : 0;
    return 0;
}

static int comm_abort(void *comm)
{
    ((struct call *)comm)->aborts++;
    return 0;
}

static const char *error_string(int result)
{
    return result == 2 ? "unhandled system error" : "?";
}

static const struct ddrun_nccl library = {.get_version = get_version,
                                          .get_unique_id = get_unique_id,
                                          .comm_init_rank = init_rank,
                                          .comm_init_rank_config = init_config,
                                          .comm_init_rank_scalable = init_scalable,
                                          .comm_get_async_error = async_error,
                                          .comm_abort = comm_abort,
                                          .get_error_string = error_string};

/* ---- communicators ---- */

struct made {
    struct ddrun_nccl nccl;
    struct ddrun_nccl_opts opts;
    int timeout_ms;
    int rc;
    void *comm;
};

static struct made made[MANY];

static void make_comm(struct ddrun *h, void *arg)
{
    struct made *m = arg;
    me = ddrun_rank(h);
    m->rc = ddrun_nccl_comm(h, NULL, &m->nccl, &m->opts, &m->comm, m->timeout_ms);
}

static void make_all(int n, struct ddrun_nccl_opts opts)
{
    memset(calls, 0, sizeof(calls));
    for (int i = 0; i < n; i++)
        made[i] = (struct made){.nccl = library, .opts = opts, .timeout_ms = LIMIT_MS, .rc = 1};
    world_run(d, n, make_comm, made, sizeof(made[0]));
}

static void assert_all_made(int n)
{
    for (int i = 0; i < n; i++) {
        if (made[i].rc != 0)
            fail_msg("rank %d: %s", i, made[i].nccl.error);
        assert_ptr_equal(made[i].comm, &calls[i]);
        assert_string_equal(calls[i].with, calls[0].with);
    }
}

static int begin(int n, struct world **w)
{
    fails_on = -1;
    fails_times = busy_looks = 0;
    *w = world_new(n, d);
    return n;
}

static void nccl_makes_three_ids_for_300_ranks(void **state)
{
    (void)state;
    struct world *w;
    int n = begin(MANY, &w);
    char expected[500];
    make_all(n, (struct ddrun_nccl_opts){0});
    assert_all_made(n);
    for (int i = 0; i < n; i++)
        assert_int_equal(calls[i].made[0] != '\0', i % 100 == 0);
    (void)snprintf(expected, sizeof(expected), "%s %s %s ", calls[0].made, calls[100].made,
                   calls[200].made);
    assert_string_equal(calls[0].with, expected);
    assert_int_equal(calls[7].ids, 3);
    assert_int_equal(calls[7].blocking, -1);
    world_free(w);
}

static void nccl_takes_one_id_where_one_rank_knows_no_more(void **state)
{
    (void)state;
    struct world *w;
    int n = begin(FEW, &w);
    memset(calls, 0, sizeof(calls));
    for (int i = 0; i < n; i++)
        made[i] = (struct made){
            .nccl = library, .opts = {.ranks_per_id = 2}, .timeout_ms = LIMIT_MS};
    made[3].nccl.comm_init_rank_scalable = NULL;
    made[3].nccl.comm_init_rank_config = NULL;
    world_run(d, n, make_comm, made, sizeof(made[0]));
    assert_all_made(n);
    assert_int_equal(calls[0].ids, 1);
    world_free(w);
}

static void nccl_is_waited_for_when_it_does_not_block(void **state)
{
    (void)state;
    struct world *w;
    int n = begin(FEW, &w);
    busy_looks = 5;
    make_all(n, (struct ddrun_nccl_opts){.nonblocking = 1});
    assert_all_made(n);
    assert_int_equal(calls[1].blocking, 0);
    assert_int_equal(calls[1].looks, 5);
    world_free(w);
}

static void nccl_tries_again_with_other_ids(void **state)
{
    (void)state;
    struct world *w;
    int n = begin(FEW, &w);
    fails_on = 2;
    fails_times = 2;
    make_all(n, (struct ddrun_nccl_opts){.tries = 3});
    assert_all_made(n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(calls[i].inits, 3);
        assert_int_equal(calls[i].aborts, 2);
    }
    assert_string_not_equal(calls[0].with, "0.1 ");
    fails_times = 9;
    make_all(n, (struct ddrun_nccl_opts){.tries = 2});
    for (int i = 0; i < n; i++) {
        assert_int_equal(made[i].rc, -EIO);
        assert_null(made[i].comm);
        assert_int_equal(calls[i].aborts, 2);
        assert_string_equal(made[i].nccl.error,
                            "NCCL communicator: member 2: unhandled system error");
    }
    world_free(w);
}

static void nccl_that_is_never_ready_is_aborted_everywhere(void **state)
{
    (void)state;
    struct world *w;
    int n = begin(2, &w);
    busy_looks = 1 << 30;
    atomic_store(&still_to_look, n);
    memset(calls, 0, sizeof(calls));
    for (int i = 0; i < n; i++)
        made[i] = (struct made){
            .nccl = library, .opts = {.nonblocking = 1}, .timeout_ms = LIMIT_MS};
    world_run(d, n, make_comm, made, sizeof(made[0]));
    for (int i = 0; i < n; i++) {
        assert_int_equal(made[i].rc, -EIO);
        assert_int_equal(calls[i].aborts, 1);
        assert_non_null(strstr(made[i].nccl.error, "not ready in time"));
    }
    world_free(w);
}

static int no_id(struct ddrun_nccl_id *id)
{
    (void)id;
    return 3;
}

static void nccl_that_makes_no_id_fails_everywhere(void **state)
{
    (void)state;
    struct world *w;
    int n = begin(2, &w);
    memset(calls, 0, sizeof(calls));
    for (int i = 0; i < n; i++)
        made[i] = (struct made){.nccl = library, .timeout_ms = LIMIT_MS};
    made[0].nccl.get_unique_id = no_id;
    world_run(d, n, make_comm, made, sizeof(made[0]));
    for (int i = 0; i < n; i++) {
        assert_int_equal(made[i].rc, -EIO);
        assert_int_equal(calls[i].inits, 0);
        assert_string_equal(made[i].nccl.error, "NCCL ids: member 0 failed to create one");
    }
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nccl_ids_are_made_by_the_first_rank_of_each_block),
        cmocka_unit_test(nccl_has_an_id_for_every_128_ranks),
        cmocka_unit_test(nccl_makes_three_ids_for_300_ranks),
        cmocka_unit_test(nccl_takes_one_id_where_one_rank_knows_no_more),
        cmocka_unit_test(nccl_is_waited_for_when_it_does_not_block),
        cmocka_unit_test(nccl_tries_again_with_other_ids),
        cmocka_unit_test(nccl_that_is_never_ready_is_aborted_everywhere),
        cmocka_unit_test(nccl_that_makes_no_id_fails_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
