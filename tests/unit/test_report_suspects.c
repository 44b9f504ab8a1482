/* report: the culprit of a hang, or of the timeout of a collective, is the rank for which the
 * others waited. */
#include "report/causes.h"
#include "report/report.h"
#include "report/stacks.h"
#include "tests/unit/report_world.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TORCH "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
#define REDUCE "all_reduce\t" TORCH "\t2811\nmain\t/u/train.py\t81\n"
#define READ "read\t/u/data.py\t40\n"
#define HUNG "hung: no output for 5 s"
#define TIMEOUT                                                                                    \
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete"
#define STOPPED "stopped by a signal or a debugger"

static const struct stack reduce = {.kind = STACK_PYTHON, .frames = REDUCE};
static const struct stack reading = {.kind = STACK_PYTHON, .frames = READ};
static const struct stack stopped = {.kind = STACK_PYTHON, .frames = READ, .state = STOPPED};
static const struct stack blocked = {.kind = STACK_KERNEL,
                                     .state = "state D, kernel function nfs_wait"};
static const struct stack ended = {.kind = STACK_ENDED};

struct doing {
    const struct stack *what; /* NULL: no more */
    int first, last;
};

/* A report of `ranks` ranks on 2 nodes, in which these ranks fail with this message. */
static struct report *waiting_in(int ranks, const char *message, const int *failed, int n,
                                 const struct doing *doing)
{
    struct report *r = fresh(0);
    struct stacks s = {0};
    report_round(r, 0, ranks, START);
    for (int i = 0; i < n; i++) {
        struct report_exit e = failing(failed[i], START + (uint64_t)(i + 1) * S);
        e.error = message;
        assert_int_equal(report_exit_add(r, &e, true), 0);
    }
    assert_int_equal(stacks_add_node(&s, "node1", 0, ranks / 2), 0);
    assert_int_equal(stacks_add_node(&s, "node2", ranks / 2, ranks / 2), 0);
    for (int i = 0; i < 4 && doing[i].what != NULL; i++)
        assert_int_equal(stacks_add(&s, doing[i].what, doing[i].first, doing[i].last), 0);
    stacks_sort(&s);
    report_stacks_take(r, &s);
    report_finish(r, "", 1, START + 9 * S);
    return r;
}

static struct report *waiting(const char *message, const int *failed, int n,
                              const struct doing *doing)
{
    return waiting_in(4, message, failed, n, doing);
}

static void has_culprit(const struct report *r, int rank, const char *ranks, const char *blame,
                        const char *why)
{
    json_t *o = json_of(r, false);
    const json_t *c = json_object_get(o, "culprit");
    assert_string_equal(json_string_value(json_object_get(c, "why")), why);
    assert_int_equal(json_integer_value(json_object_get(c, "rank")), rank);
    assert_string_equal(json_string_value(json_object_get(c, "ranks")), ranks);
    assert_string_equal(json_string_value(json_object_get(c, "blame")), blame);
    const int half = (int)json_integer_value(json_object_get(o, "world_size")) / 2;
    assert_string_equal(json_string_value(json_object_get(c, "node")),
                        rank < half ? "node1" : "node2");
    json_decref(o);
    DD_AUTO(free) char *text = text_of(r);
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(1000);
    assert_int_equal(dd_buf_printf(&line, "\n  culprit: %s\n", why), 0);
    assert_non_null(strstr(text, dd_buf_str(&line)));
}

static const struct {
    const char *message;
    int failed[4], n;
    struct doing doing[4];
    int rank;
    const char *ranks, *blame, *why;
} verdicts[] = {
    {HUNG,
     {3, 0, 1, 2},
     4,
     {{&reduce, 0, 1}, {&reading, 2, 2}, {&reduce, 3, 3}},
     2,
     "2",
     "worker",
     "rank 2 on node2, which was in read, data.py:40, while ranks 0-1,3 waited in all_reduce, "
     "train.py:81"},
    {TIMEOUT,
     {0, 1},
     2,
     {{&ended, 0, 1}, {&reading, 2, 2}, {&reduce, 3, 3}},
     2,
     "2",
     "worker",
     "rank 2 on node2, which was in read, data.py:40, while rank 3 waited in all_reduce, "
     "train.py:81"},
    {TIMEOUT,
     {0, 1, 3},
     3,
     {{&ended, 0, 1}, {&stopped, 2, 2}, {&reading, 3, 3}},
     2,
     "2",
     "worker",
     "rank 2 on node2, which was " STOPPED " while others waited"},
    {TIMEOUT,
     {3, 1},
     2,
     {{&reduce, 2, 3}, {&blocked, 0, 0}, {&ended, 1, 1}},
     0,
     "0",
     "worker",
     "rank 0 on node1, which was in state D, kernel function nfs_wait, while ranks 2-3 waited "
     "in all_reduce, train.py:81"},
    {HUNG,
     {3, 0},
     2,
     {{&reduce, 0, 1}, {&reading, 2, 3}},
     2,
     "2-3",
     "worker",
     "ranks 2-3 on node2, which were in read, data.py:40, while ranks 0-1 waited in "
     "all_reduce, train.py:81"},
    /* nothing follows from these */
    {HUNG,
     {3, 0},
     2,
     {{&reduce, 0, 3}},
     3,
     "3",
     "unknown",
     "unknown: several ranks showed no activity, rank 3 is one of them"},
    {HUNG,
     {3, 0},
     2,
     {{&reduce, 0, 0}, {&reading, 1, 3}},
     3,
     "3",
     "unknown",
     "unknown: several ranks showed no activity, rank 3 is one of them"},
    {HUNG,
     {1},
     1,
     {{&reading, 1, 1}},
     1,
     "1",
     "worker",
     "rank 1 on node1, the only rank that hung"},
    {"RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer",
     {3, 0},
     2,
     {{&reduce, 0, 0}, {&ended, 1, 1}, {&reading, 2, 2}, {&ended, 3, 3}},
     3,
     "3",
     "unknown",
     "unknown: rank 3 was the first to report a lost or late peer, and no rank has reported an error of its own"},
    {"ValueError: boom",
     {1},
     1,
     {{&reduce, 0, 0}, {&stopped, 2, 2}, {&reduce, 3, 3}},
     1,
     "1",
     "worker",
     "rank 1 on node1, the only rank that failed by itself"},
};

static void rank_for_which_the_others_waited_is_the_culprit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
        struct report *r = waiting(verdicts[i].message, verdicts[i].failed, verdicts[i].n,
                                   verdicts[i].doing);
        has_culprit(r, verdicts[i].rank, verdicts[i].ranks, verdicts[i].blame, verdicts[i].why);
        report_free(r);
    }
}

#define AT(function, file, line)                                                                   \
    {.kind = STACK_PYTHON, .frames = function "\t" file "\t7\nmain\t/u/train.py\t" line "\n"}

static const struct stack reduce_90 = AT("all_reduce", TORCH, "90");
static const struct stack gather = AT("all_gather", TORCH, "81");
static const struct stack gather_inner = {
    .kind = STACK_PYTHON,
    .frames = "_tensor_to_object\t" TORCH "\t9\nall_gather\t" TORCH "\t7\nmain\t/u/train.py\t81\n"};
static const struct stack barrier = AT("barrier", TORCH, "95");
static const struct stack receive = AT("recv", TORCH, "81");
static const struct stack own_gather = AT("gather", "/u/lists.py", "81");
static const struct stack unread = {.kind = STACK_UNREAD, .note = "not read within 2 s"};
static const struct stack stopped_gather = {.kind = STACK_PYTHON,
                                            .frames = "all_gather\t" TORCH
                                                      "\t7\nmain\t/u/train.py\t81\n",
                                            .state = STOPPED};

#define IN_GATHER "in all_gather, train.py:81, while rank"
#define IN_REDUCE "in all_reduce, train.py:90"

static const struct {
    int ranks;
    struct doing doing[4];
    const char *found, *why; /* NULL: no rank */
} others_wait[] = {
    {8,
     {{&gather, 5, 5}, {&reduce_90, 0, 4}, {&reduce_90, 6, 7}},
     "5",
     "rank 5 on node2, which waits " IN_GATHER "s 0-4,6-7 wait " IN_REDUCE},
    {8,
     {{&gather, 1, 1}, {&gather_inner, 0, 0}, {&reduce_90, 2, 7}},
     "0-1",
     "ranks 0-1 on node1, which wait " IN_GATHER "s 2-7 wait " IN_REDUCE},
    {4,
     {{&reduce_90, 1, 3}, {&barrier, 0, 0}},
     "0",
     "rank 0 on node1, which waits in barrier, train.py:95, while ranks 1-3 wait " IN_REDUCE},
    /* another rule names the rank */
    {4,
     {{&stopped_gather, 0, 0}, {&reduce_90, 1, 3}},
     "0",
     "rank 0 on node1, which was " STOPPED " while ranks 1-3 waited " IN_REDUCE},
    {4,
     {{&gather, 0, 0}, {&reading, 1, 1}, {&reduce_90, 2, 3}},
     "1",
     "rank 1 on node1, which was in read, data.py:40, while ranks 2-3 waited " IN_REDUCE},
    /* nothing follows from these: even, more than a quarter, three collectives, an unknown rank */
    {2, {{&gather, 0, 0}, {&reduce_90, 1, 1}}, NULL, NULL},
    {4, {{&gather, 0, 1}, {&reduce_90, 2, 3}}, NULL, NULL},
    {8, {{&gather, 0, 2}, {&reduce_90, 3, 7}}, NULL, NULL},
    {8, {{&gather, 5, 5}, {&barrier, 6, 6}, {&reduce_90, 0, 4}, {&reduce_90, 7, 7}}, NULL, NULL},
    {8, {{&gather, 5, 5}, {&reduce_90, 0, 4}, {&reduce_90, 6, 6}, {&unread, 7, 7}}, NULL, NULL},
    {8, {{&gather, 5, 5}, {&reduce_90, 0, 4}, {&reduce_90, 6, 6}, {&ended, 7, 7}}, NULL, NULL},
    {8, {{&gather, 5, 5}, {&reduce_90, 0, 4}}, NULL, NULL},
    /* the same collective at another line, an operation of two ranks, a function of the user */
    {8, {{&reduce, 5, 5}, {&reduce_90, 0, 4}, {&reduce_90, 6, 7}}, NULL, NULL},
    {8, {{&receive, 5, 5}, {&reduce_90, 0, 4}, {&reduce_90, 6, 7}}, NULL, NULL},
    {8, {{&own_gather, 5, 5}, {&reduce_90, 0, 4}, {&reduce_90, 6, 7}}, NULL, NULL},
};

static void few_ranks_that_wait_in_another_collective_are_the_culprit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(others_wait) / sizeof(others_wait[0]); i++) {
        const bool found = others_wait[i].found != NULL;
        struct report *r = waiting_in(others_wait[i].ranks, HUNG, (const int[]){0, 1}, 2,
                                      others_wait[i].doing);
        has_culprit(r, found ? others_wait[i].found[0] - '0' : 0,
                    found ? others_wait[i].found : "0", found ? "worker" : "unknown",
                    found ? others_wait[i].why
                          : "unknown: several ranks showed no activity, rank 0 is one of them");
        report_free(r);
    }
}

/* ---- the same where a timeout of the collective has ended ranks ---- */

#define TRACE_OF(function, line)                                                                   \
    "Traceback (most recent call last):\n  File \"/u/train.py\", line " line                       \
    ", in main\n    dist." function "(t)\n  File \"" TORCH "\", line 7, in " function              \
    "\n    work.wait()\n" TIMEOUT "\n"
#define OF_REDUCE TRACE_OF("all_reduce", "90")
#define OF_GATHER TRACE_OF("all_gather", "81")
#define FAILED_IN(function, line)                                                                  \
    {.kind = STACK_ENDED, .frames = function "\t" TORCH "\t7\nmain\t/u/train.py\t" line "\n"}

static const struct stack failed_reduce = FAILED_IN("all_reduce", "90");
static const struct stack failed_gather = FAILED_IN("all_gather", "81");
static const struct stack no_frame = {
    .kind = STACK_KERNEL, .state = "state R", .note = "no Python frame"};
static const struct stack printing = {
    .kind = STACK_PYTHON,
    .frames = "_distributed_excepthook\t/v/torch/distributed/__init__.py\t9\n"};
static const struct stack logging = {
    .kind = STACK_PYTHON,
    .frames = "debug\t"
              "/usr/lib/python3.11/logging/__init__.py\t9\n"
              "wrapper\t/v/lib/python3.11/site-packages/torch/distributed/c10d_logger.py\t83\n"
              "main\t/u/train.py\t90\n"};

#define WAITED                                                                                     \
    "rank 2 on node2, which waited in all_gather, train.py:81, while ranks 0-1,3 waited in all_reduce, train.py:90"

static const struct {
    const char *tails[4]; /* of ranks that have failed; NULL: the rank was stopped */
    struct doing doing[4];
    const char *why; /* NULL: no rank */
} timed_out[] = {
    /* all have failed, whatever could be read */
    {{OF_REDUCE, OF_REDUCE, OF_GATHER, OF_REDUCE}, {{&ended, 0, 3}}, WAITED},
    {{OF_REDUCE, OF_REDUCE, OF_GATHER, OF_REDUCE}, {{&unread, 0, 3}}, WAITED},
    {{OF_REDUCE, OF_REDUCE, OF_GATHER, OF_REDUCE}, {{NULL, 0, 0}}, WAITED},
    {{OF_REDUCE, OF_REDUCE, OF_GATHER, OF_REDUCE},
     {{&printing, 0, 0}, {&no_frame, 1, 2}, {&logging, 3, 3}},
     WAITED},
    /* others were read in the collective, or after they had printed the traceback */
    {{OF_REDUCE}, {{&failed_reduce, 0, 1}, {&gather, 2, 2}, {&reduce_90, 3, 3}}, WAITED},
    {{OF_REDUCE},
     {{&ended, 0, 0}, {&failed_gather, 2, 2}, {&reduce_90, 1, 1}, {&reduce_90, 3, 3}},
     WAITED},
    /* nothing follows: a rank that is not known, which must not be blamed either */
    {{OF_REDUCE}, {{&ended, 0, 1}, {&gather, 2, 2}, {&reduce_90, 3, 3}}, NULL},
    {{OF_REDUCE, OF_REDUCE, NULL, OF_REDUCE},
     {{&no_frame, 2, 2}, {&ended, 0, 1}, {&ended, 3, 3}},
     NULL},
    {{OF_REDUCE, OF_REDUCE, NULL, OF_REDUCE},
     {{&printing, 2, 2}, {&ended, 0, 1}, {&ended, 3, 3}},
     NULL},
    {{OF_REDUCE, OF_REDUCE, NULL, OF_REDUCE},
     {{&logging, 2, 2}, {&ended, 0, 1}, {&ended, 3, 3}},
     NULL},
    /* the same collective, and a traceback that does not show where the rank had waited */
    {{OF_REDUCE, OF_REDUCE, OF_REDUCE, OF_REDUCE}, {{&ended, 0, 3}}, NULL},
    {{OF_REDUCE, OF_REDUCE,
      OF_REDUCE
      "\nDuring handling of the above exception, another exception occurred:\n\n" OF_GATHER,
      OF_REDUCE},
     {{&ended, 0, 3}},
     NULL},
};

static void workers_that_had_lost_a_peer_when_they_were_stopped_are_counted(void **state)
{
    static const struct doing doing[4] = {
        {&ended, 2, 2}, {&failed_reduce, 1, 1}, {&failed_reduce, 3, 3}, {&reduce, 0, 0}};
    (void)state;
    struct report *r = waiting("ValueError: boom", (const int[]){2}, 1, doing);
    assert_int_equal(report_ends_add(r, &(struct report_ends){.stopped = 3}), 0);
    DD_AUTO(free) char *text = text_of(r);
    assert_non_null(strstr(text, "\n  others: 3 were stopped (2 after the loss of a peer)\n"));
    report_free(r);
}

static struct report *timing_out(size_t i)
{
    struct report *r = waiting_in(4, "", NULL, 0, timed_out[i].doing);
    for (int rank = 0; rank < 4; rank++) {
        struct report_exit e = failing(rank, START + (uint64_t)(rank + 1) * S);
        e.error = "";
        e.tail = timed_out[i].tails[rank];
        if (e.tail != NULL)
            assert_int_equal(report_exit_add(r, &e, true), 0);
    }
    return r;
}

static void a_timeout_that_ends_the_ranks_leaves_the_culprit_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(timed_out) / sizeof(timed_out[0]); i++) {
        struct report *r = timing_out(i);
        const bool found = timed_out[i].why != NULL;
        has_culprit(
            r, found ? 2 : 0, found ? "2" : "0", found ? "worker" : "unknown",
            found
                ? timed_out[i].why
                : "unknown: rank 0 was the first to report a lost or late peer, and no rank has reported an error of its own");
        report_free(r);
    }
}

/* ---- programs that are not Python, with native frames ---- */

#define LIBMPI "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
#define SPIN "poll\t/usr/lib/libc.so.6\t0\nopal_progress\t" LIBMPI "\t0\n"
#define IN_MPI(function, line, state_)                                                             \
    {.kind = STACK_KERNEL,                                                                         \
     .frames = SPIN function "\t" LIBMPI "\t0\nmain\t/u/heat.c\t" line "\n",                       \
     .state = state_}

static const struct stack mpi_reduce = IN_MPI("PMPI_Allreduce", "81", "state R");
static const struct stack mpi_reduce_2 = IN_MPI("PMPI_Allreduce", "81",
                                                "state R, kernel function x");
static const struct stack mpi_clock = {.kind = STACK_KERNEL,
                                       .frames = "clock_gettime\t[vdso: 5000]\t0\n"
                                                 "PMPI_Allreduce\t" LIBMPI
                                                 "\t0\nmain\t/u/heat.c\t81\n",
                                       .state = "state R"};
static const struct stack mpi_barrier = IN_MPI("MPI_Barrier", "95", "state R");
static const struct stack mpi_split = IN_MPI("PMPI_Allgather\t" LIBMPI "\t0\nPMPI_Comm_split", "95",
                                             "state R");
static const struct stack mpi_receive = IN_MPI("PMPI_Recv", "99", "state S");
static const struct stack mpi_write = IN_MPI("MPI_File_write", "99", "state S");
static const struct stack mpi_stopped = IN_MPI("PMPI_Allreduce", "81", "state T");
static const struct stack block = {.kind = STACK_KERNEL,
                                   .frames = "read\t/usr/lib/libc.so.6\t0\n"
                                             "main\t/u/heat.c\t40\n",
                                   .state = "state S, kernel function pipe_read"};
static const struct stack mpi4py = {.kind = STACK_PYTHON,
                                    .frames = "PMPI_Allreduce\tnative:" LIBMPI "\t0\n"
                                              "main\t/u/heat.py\t81\n"};
static const struct stack asleep = {.kind = STACK_KERNEL, .state = "state S"};
static const struct stack held = {.kind = STACK_KERNEL, .state = "state T"};

#define IN_MPI_REDUCE "waited in PMPI_Allreduce, heat.c:81"

static const struct {
    struct doing doing[4];
    const char *found, *why; /* NULL: no rank */
} native_stacks[] = {
    {{{&mpi_reduce, 0, 0}, {&mpi_reduce_2, 1, 1}, {&block, 2, 2}, {&mpi_clock, 3, 3}},
     "2",
     "rank 2 on node2, which was in read, heat.c:40, while ranks 0-1,3 " IN_MPI_REDUCE},
    {{{&mpi_reduce, 0, 1}, {&mpi_write, 2, 2}, {&mpi_receive, 3, 3}},
     "2",
     "rank 2 on node2, which was in MPI_File_write, heat.c:99, while ranks 0-1 " IN_MPI_REDUCE},
    {{{&mpi_reduce, 0, 1}, {&mpi_stopped, 2, 2}, {&mpi_reduce_2, 3, 3}},
     "2",
     "rank 2 on node2, which was " STOPPED " while ranks 0-1,3 " IN_MPI_REDUCE},
    {{{&held, 3, 3}}, "3", "rank 3 on node2, which was " STOPPED " while others waited"},
    {{{&mpi_reduce, 0, 1}, {&mpi_barrier, 2, 2}, {&mpi_reduce_2, 3, 3}},
     "2",
     "rank 2 on node2, which waits in MPI_Barrier, heat.c:95, while ranks 0-1,3 wait in "
     "PMPI_Allreduce, heat.c:81"},
    {{{&mpi4py, 0, 2}, {&reading, 3, 3}},
     "3",
     "rank 3 on node2, which was in read, data.py:40, while ranks 0-2 waited in main, heat.py:81"},
    /* nothing follows from these */
    {{{&mpi_reduce, 0, 3}}, NULL, NULL},
    {{{&mpi_reduce, 0, 2}, {&mpi_split, 3, 3}}, NULL, NULL},
    {{{&mpi_reduce, 0, 2}, {&mpi_receive, 3, 3}}, NULL, NULL},
    {{{&asleep, 0, 2}, {&reading, 3, 3}}, NULL, NULL},
    {{{&block, 0, 3}}, NULL, NULL},
};

static void native_frames_show_for_which_rank_the_others_waited(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(native_stacks) / sizeof(native_stacks[0]); i++) {
        const bool found = native_stacks[i].found != NULL;
        struct report *r = waiting(HUNG, (const int[]){0, 1}, 2, native_stacks[i].doing);
        has_culprit(r, found ? native_stacks[i].found[0] - '0' : 0,
                    found ? native_stacks[i].found : "0", found ? "worker" : "unknown",
                    found ? native_stacks[i].why
                          : "unknown: several ranks showed no activity, rank 0 is one of them");
        report_free(r);
    }
}

static const struct stack mpi4py_bare = {.kind = STACK_PYTHON, .frames = "main\t/u/heat.py\t81\n"};

static const struct {
    const char *message;
    struct doing doing[4];
    bool wanted;
} in_mpi[] = {
    {HUNG "; " FAILURE_CAUSE_IN_MPI, {{NULL, 0, 0}}, true},
    {HUNG "; " FAILURE_CAUSE_IN_MPI, {{&asleep, 0, 3}}, true},
    {HUNG "; " FAILURE_CAUSE_IN_MPI, {{&mpi4py_bare, 0, 3}}, true},
    /* another program, frames that were read, a rank that is known */
    {HUNG, {{NULL, 0, 0}}, false},
    {HUNG "; " FAILURE_CAUSE_IN_MPI, {{&mpi_reduce, 0, 3}}, false},
    {HUNG "; " FAILURE_CAUSE_IN_MPI, {{&mpi4py, 0, 3}}, false},
    {HUNG "; " FAILURE_CAUSE_IN_MPI, {{&held, 3, 3}}, false},
};

static void a_hang_in_mpi_without_native_frames_has_a_tip_that_names_the_option(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(in_mpi) / sizeof(in_mpi[0]); i++) {
        struct report *r = waiting(in_mpi[i].message, (const int[]){0, 1}, 2, in_mpi[i].doing);
        json_t *o = json_of(r, false);
        const char *tip = json_string_value(json_object_get(o, "what_to_do"));
        assert_string_equal(json_string_value(json_object_get(o, "known_cause")), "hang");
        assert_int_equal(strstr(tip, "in which MPI function") != NULL, in_mpi[i].wanted);
        json_decref(o);
        report_free(r);
    }
}

static void tip_looks_for_a_rank_only_if_the_report_names_none(void **state)
{
    static const struct {
        const char *message;
        struct doing doing[4];
        const char *tip;
    } rows[] = {
        {HUNG,
         {{&reading, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
         "find out what the culprit executes"},
        {TIMEOUT,
         {{&reading, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
         "find out what the culprit executes"},
        {HUNG, {{&held, 3, 3}}, "find out what the culprit executes"},
        {HUNG, {{&reduce, 0, 3}}, "one rank is probably stuck"},
        {TIMEOUT, {{NULL, 0, 0}}, "shorter than the timeout of the process group"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct report *r = waiting(rows[i].message, (const int[]){0, 1}, 2, rows[i].doing);
        json_t *o = json_of(r, false);
        DD_AUTO(free) char *text = text_of(r);
        const char *tip = json_string_value(json_object_get(o, "what_to_do"));
        assert_non_null(strstr(tip, rows[i].tip));
        assert_non_null(strstr(text, tip));
        json_decref(o);
        report_free(r);
    }
}

/* ---- ranks that wait for a process of their own ---- */

#define PYTHON "/usr/lib/python3.11/"
#define LOADER "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
#define NEXT                                                                                       \
    "_try_get_data\t" LOADER "\t1291\n_get_data\t" LOADER "\t1464\n_next_data\t" LOADER            \
    "\t1500\n__next__\t" LOADER "\t741\n"
#define POLL                                                                                       \
    "wait\t" PYTHON "multiprocessing/connection.py\t930\npoll\t" PYTHON                            \
    "multiprocessing/connection.py\t257\nget\t" PYTHON "multiprocessing/queues.py\t113\n"
#define IN_LOADER {.kind = STACK_PYTHON, .frames = POLL NEXT "main\t/u/train.py\t40\n"}

static const struct stack loading = IN_LOADER;
static const struct stack loading_deeper = {
    .kind = STACK_PYTHON,
    .frames = "select\t" PYTHON "selectors.py\t468\n" POLL NEXT "main\t/u/train.py\t40\n"};
static const struct stack loading_pinned = {
    .kind = STACK_PYTHON,
    .frames = "wait\t" PYTHON "threading.py\t331\nget\t" PYTHON "queue.py\t180\n" NEXT
              "__iter__\t/v/lib/python3.11/site-packages/tqdm/std.py\t1181\n"
              "main\t/u/train.py\t40\n"};
static const struct stack loading_in_library = {
    .kind = STACK_PYTHON,
    .frames = POLL NEXT "__iter__\t/v/lib/python3.11/site-packages/tqdm/std.py\t1181\n"};
/* num_workers=0: the rank loads by itself */
static const struct stack loading_alone = {
    .kind = STACK_PYTHON,
    .frames = "__getitem__\t/u/data.py\t40\nfetch\t" LOADER "\t54\n_next_data\t" LOADER
              "\t788\n__next__\t" LOADER "\t741\nmain\t/u/train.py\t40\n"};
static const struct stack loading_stopped = {
    .kind = STACK_PYTHON, .frames = POLL NEXT "main\t/u/train.py\t40\n", .state = STOPPED};
static const struct stack own_process = {.kind = STACK_PYTHON,
                                         .frames = "wait\t" PYTHON "subprocess.py\t1264\n"
                                                   "main\t/u/train.py\t12\n"};

#define STUCK "dataloader-worker-stuck"
#define FOR_LOADER "for a DataLoader process, train.py:40, while rank"
#define WAIT_IN_REDUCE "s 0-1,3 wait in all_reduce, train.py:81"

static const struct {
    int ranks;
    const char *message;
    struct doing doing[4];
    const char *found, *why, *known; /* found NULL: nobody */
} of_its_own[] = {
    {4,
     HUNG,
     {{&loading, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which waits " FOR_LOADER WAIT_IN_REDUCE,
     STUCK},
    {4,
     HUNG,
     {{&loading_pinned, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which waits " FOR_LOADER WAIT_IN_REDUCE,
     STUCK},
    {4,
     HUNG,
     {{&loading_in_library, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which waits for a DataLoader process, std.py:1181, while rank" WAIT_IN_REDUCE,
     STUCK},
    {8,
     HUNG,
     {{&loading, 5, 5}, {&loading_deeper, 4, 4}, {&reduce, 0, 3}, {&reduce, 6, 7}},
     "4-5",
     "ranks 4-5 on node2, which wait " FOR_LOADER "s 0-3,6-7 wait in all_reduce, train.py:81",
     STUCK},
    {4,
     TIMEOUT,
     {{&loading, 2, 2}, {&ended, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which waits " FOR_LOADER " 3 waits in all_reduce, train.py:81",
     STUCK},
    /* every rank waits for such a process: the reason is known, but no rank */
    {4, HUNG, {{&loading, 0, 3}}, NULL, NULL, STUCK},
    /* a rank that loads by itself, is stopped, or waits for another process */
    {4,
     HUNG,
     {{&loading_alone, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which was in __getitem__, data.py:40, while ranks 0-1,3 waited in "
     "all_reduce, train.py:81",
     "hang"},
    {4,
     HUNG,
     {{&loading_stopped, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which was " STOPPED " while ranks 0-1,3 waited in all_reduce, train.py:81",
     "hang"},
    {4,
     HUNG,
     {{&own_process, 2, 2}, {&reduce, 0, 1}, {&reduce, 3, 3}},
     "2",
     "rank 2 on node2, which was in wait, train.py:12, while ranks 0-1,3 waited in all_reduce, "
     "train.py:81",
     "hang"},
    /* one that loads and one that reads: either may hold up the others */
    {4, HUNG, {{&loading, 2, 2}, {&reading, 3, 3}, {&reduce, 0, 1}}, NULL, NULL, "hang"},
};

static void rank_that_waits_for_a_process_of_its_own_is_the_culprit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(of_its_own) / sizeof(of_its_own[0]); i++) {
        const char *found = of_its_own[i].found;
        struct report *r = waiting_in(of_its_own[i].ranks, of_its_own[i].message,
                                      (const int[]){0, 1}, 2, of_its_own[i].doing);
        has_culprit(r, found != NULL ? found[0] - '0' : 0, found != NULL ? found : "0",
                    found != NULL ? "worker" : "unknown",
                    found != NULL
                        ? of_its_own[i].why
                        : "unknown: several ranks showed no activity, rank 0 is one of them");
        json_t *o = json_of(r, false);
        assert_string_equal(json_string_value(json_object_get(o, "known_cause")),
                            of_its_own[i].known);
        const char *tip = json_string_value(json_object_get(o, "what_to_do"));
        assert_int_equal(strstr(tip, "num_workers=0") != NULL,
                         strcmp(of_its_own[i].known, STUCK) == 0);
        json_decref(o);
        report_free(r);
    }
}

static void rank_that_has_not_entered_a_collective_is_the_culprit(void **state)
{
    static const struct doing nothing[1];
    static const struct flight_record in = {
        .waiting = true, .number = 2, .group = "default_pg", .name = "all_reduce", .bytes = 4096};
    static const struct flight_record behind = {
        .number = 1, .group = "default_pg", .name = "all_reduce"};
    static const char *const messages[] = {
        HUNG, "RuntimeError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2)"};
    (void)state;
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
        struct report *r = waiting(messages[i], (const int[]){3, 0}, 2, nothing);
        struct stacks s = {0};
        assert_int_equal(stacks_add_node(&s, "node1", 0, 2), 0);
        assert_int_equal(flight_groups_add(&s.collectives, &in, 0, 0), 0);
        assert_int_equal(flight_groups_add(&s.collectives, &in, 2, 3), 0);
        assert_int_equal(flight_groups_add(&s.collectives, &behind, 1, 1), 0);
        report_stacks_take(r, &s);
        has_culprit(r, 1, "1", "worker",
                    "rank 1 on node1, which has not entered all_reduce, collective 2 of "
                    "default_pg, 4 KiB, in which ranks 0,2-3 wait");
        report_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_that_had_lost_a_peer_when_they_were_stopped_are_counted),
        cmocka_unit_test(rank_for_which_the_others_waited_is_the_culprit),
        cmocka_unit_test(few_ranks_that_wait_in_another_collective_are_the_culprit),
        cmocka_unit_test(a_timeout_that_ends_the_ranks_leaves_the_culprit_known),
        cmocka_unit_test(native_frames_show_for_which_rank_the_others_waited),
        cmocka_unit_test(a_hang_in_mpi_without_native_frames_has_a_tip_that_names_the_option),
        cmocka_unit_test(tip_looks_for_a_rank_only_if_the_report_names_none),
        cmocka_unit_test(rank_that_waits_for_a_process_of_its_own_is_the_culprit),
        cmocka_unit_test(rank_that_has_not_entered_a_collective_is_the_culprit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
