/* report: what NCCL's RAS threads answer. tests/data/nccl_ras has answers in the form that NCCL's
 * source and NVIDIA's user guide show; none was recorded, since that needs several GPUs. */
#include "report/nccl_ras.h"
#include "report/stacks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORLD = 4, ANSWER_MAX = 1 << 16 };

static size_t answer_of(const char *name, char out[ANSWER_MAX])
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/tests/data/nccl_ras/%s",
                   getenv("srcdir") != NULL ? getenv("srcdir") : ".", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(out, 1, ANSWER_MAX, f);
    assert_int_equal(fclose(f), 0);
    return n;
}

/* Read an answer, and find the ranks by the PIDs 3000 to 3003, which are the only ones on their
 * nodes unless `alike`: then both nodes have the PIDs 3002 and 3003. */
static struct nccl_ras read_answer(const char *name, bool alike)
{
    static char text[ANSWER_MAX];
    struct nccl_ras s;
    assert_int_equal(nccl_ras_read(&s, text, answer_of(name, text)), 0);
    for (int rank = 0; rank < WORLD; rank++)
        assert_int_equal(nccl_ras_add_process(&s, rank, alike ? 3002 + rank % 2 : 3000 + rank), 0);
    assert_int_equal(nccl_ras_resolve(&s, WORLD), 0);
    return s;
}

static void says(const char *name, bool alike, const char *lines, const char *missing,
                 const char *ranks)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf who = DD_BUF_INIT(1 << 16);
    DD_AUTO(rank_set) struct rank_set found = {0};
    const struct rank_set ended = {0};
    struct nccl_ras s = read_answer(name, alike);
    assert_int_equal(nccl_ras_text(&s, "", 8, &out), 0);
    assert_string_equal(dd_buf_str(&out), lines);
    assert_int_equal(nccl_ras_missing(&s, WORLD, &ended, &found, &why), missing != NULL);
    assert_int_equal(rank_set_text(&found, &who), 0);
    assert_string_equal(dd_buf_str(&who), ranks);
    assert_string_equal(dd_buf_str(&why), missing != NULL ? missing : "");
    nccl_ras_done(&s);
}

#define COMM "communicator 27a079b828ff1a75 of 4 ranks: "

static void rank_that_has_launched_fewer_operations_is_named(void **state)
{
    (void)state;
    says("behind", false,
         COMM "AllReduce operation counts differ: ranks 0-1,3 at 812, rank 2 at 811\n",
         "has launched 811 AllReduce operations of NCCL communicator 27a079b828ff1a75, while "
         "others are at 812",
         "2");
    says("behind_old", false,
         COMM "collective operation counts differ: ranks 0-1,3 at 812, rank 2 at 811\n",
         "has launched 811 collective operations of NCCL communicator 27a079b828ff1a75, while "
         "others are at 812",
         "2");
}

static void number_in_a_communicator_of_all_ranks_decides_between_equal_pids(void **state)
{
    (void)state;
    says("behind", true,
         COMM "AllReduce operation counts differ: ranks 0-1,3 at 812, rank 2 at 811\n",
         "has launched 811 AllReduce operations of NCCL communicator 27a079b828ff1a75, while "
         "others are at 812",
         "2");
}

/* Rank 3 is behind rank 2 in a small communicator, but it waits for rank 1 in the large one. */
static void rank_that_waits_elsewhere_holds_up_no_other(void **state)
{
    (void)state;
    says("two_communicators", false,
         COMM "AllReduce operation counts differ: ranks 0,2-3 at 812, rank 1 at 811\n"
              "communicator 5d1e0be8a2d4c3f1 of 2 ranks: Broadcast operation counts differ: "
              "rank 2 at 8, rank 3 at 0\n",
         "has launched 811 AllReduce operations of NCCL communicator 27a079b828ff1a75, while "
         "others are at 812",
         "1");
    says("two_communicators", true,
         COMM "AllReduce operation counts differ: ranks 0,2-3 at 812, rank 1 at 811\n"
              "communicator 5d1e0be8a2d4c3f1 of 2 ranks: Broadcast operation counts differ: "
              "rank 0 of the communicator (pid 3002) at 8, rank 1 of the communicator (pid 3003) "
              "at 0\n",
         "has launched 811 AllReduce operations of NCCL communicator 27a079b828ff1a75, while "
         "others are at 812",
         "1");
}

static void process_that_does_not_answer_is_named(void **state)
{
    (void)state;
    says("silent", false, "rank 3 did not answer\n" COMM "rank 3 did not answer\n",
         "does not answer NCCL's RAS threads on other ranks", "3");
    says("dead", false, "rank 3 considered dead\n" COMM "rank 3 did not answer\n",
         "does not answer NCCL's RAS threads on other ranks", "3");
}

static void rank_that_had_ended_is_no_culprit(void **state)
{
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(1 << 16);
    DD_AUTO(rank_set) struct rank_set ended = {0};
    DD_AUTO(rank_set) struct rank_set found = {0};
    (void)state;
    struct nccl_ras s = read_answer("silent", false);
    assert_int_equal(rank_set_add(&ended, 3, 3), 0);
    assert_int_equal(nccl_ras_missing(&s, WORLD, &ended, &found, &why), 0);
    assert_int_equal(why.len, 0);
    nccl_ras_done(&s);
}

static void errors_and_states_are_shown(void **state)
{
    (void)state;
    says("errors", false,
         COMM "rank 0: Remote process error, rank 3: Unhandled CUDA error\n" COMM
              "the status differs: ranks 0-1,3 RUNNING, rank 2 ABORT\n",
         NULL, "");
    says("ok", false, "3 communicators; no rank differs from the others\n", NULL, "");
}

/* Half of the ranks is behind, or ranks of which NCCL names none: nothing follows. */
static void unclear_counts_name_no_rank(void **state)
{
    static const char *const texts[] = {
        "Group \n    0 1 1 4 4 4 RUNNING MISMATCH\n\n#0-0 (1) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  2 ranks have launched up to operation 8\n  2 ranks have launched up to operation 7\n",
        "Group \n    0 1 1 4 4 4 RUNNING MISMATCH\n\n#0-0 (1) MISMATCH\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  3 ranks have launched up to operation 7\n"
        "  Rank 0 has launched up to operation 8 -- GPU 0 managed by process 3000 on node n\n",
        "Group \n    0 1 1 4 4 4 RUNNING MISMATCH\n\n#0-0 (1) MISMATCH\n"
        "  Communicator ranks have different SendRecv operation counts\n"
        "  3 ranks have launched up to operation 8\n"
        "  Rank 0 has launched up to operation 7 -- GPU 0 managed by process 3000 on node n\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(1 << 16);
        DD_AUTO(rank_set) struct rank_set found = {0};
        const struct rank_set ended = {0};
        struct nccl_ras s;
        assert_int_equal(nccl_ras_read(&s, texts[i], strlen(texts[i])), 0);
        assert_int_equal(s.n, 1);
        assert_int_equal(nccl_ras_resolve(&s, WORLD), 0);
        assert_int_equal(nccl_ras_missing(&s, WORLD, &ended, &found, &why), 0);
        assert_int_equal(why.len, 0);
        nccl_ras_done(&s);
    }
}

static void text_of_another_program_is_refused(void **state)
{
    struct nccl_ras s;
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    (void)state;
    assert_int_equal(nccl_ras_read(&s, text, sizeof(text) - 1), -EPROTO);
    nccl_ras_done(&s);
    assert_int_equal(nccl_ras_read(&s, "", 0), -EPROTO);
    nccl_ras_done(&s);
}

static void hostile_counts_are_bounded(void **state)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    struct nccl_ras s;
    (void)state;
    (void)dd_buf_puts(&text, "Group \n 99999999999999999999 1 1 1 1 1 RUNNING OK\n\n");
    for (int i = 0; i < 100; i++)
        (void)dd_buf_puts(&text, "#0-0 (1) ERROR\n  Asynchronous errors on 2 ranks\n"
                                 "  99999999999999999999 ranks reported \033[2Jx\n"
                                 "  7 ranks reported \033[2Jx\n");
    for (int i = 0; i < 3000; i++)
        (void)dd_buf_puts(&text, "  Rank 5 -- GPU 0 managed by process 7 on node n\n");
    assert_int_equal(nccl_ras_read(&s, (const char *)text.data, text.len), 0);
    assert_int_equal(s.n, NCCL_RAS_FINDINGS);
    assert_true(s.named <= NCCL_RAS_NAMED);
    assert_null(strchr(s.v[0].sets[0].what, '\033'));
    nccl_ras_done(&s);
}

static void with_processes(const int v[][2], size_t n, const char *line, const char *culprit)
{
    static char text[ANSWER_MAX];
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf why = DD_BUF_INIT(1 << 16);
    DD_AUTO(buf) struct dd_buf who = DD_BUF_INIT(1 << 16);
    DD_AUTO(rank_set) struct rank_set found = {0};
    const struct rank_set ended = {0};
    struct nccl_ras s;
    assert_int_equal(nccl_ras_read(&s, text, answer_of("behind", text)), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(nccl_ras_add_process(&s, v[i][0], v[i][1]), 0);
    assert_int_equal(nccl_ras_resolve(&s, WORLD), 0);
    assert_int_equal(nccl_ras_text(&s, "", 8, &out), 0);
    assert_string_equal(dd_buf_str(&out), line);
    assert_int_equal(nccl_ras_missing(&s, WORLD, &ended, &found, &why), culprit[0] != '\0');
    assert_int_equal(rank_set_text(&found, &who), 0);
    assert_string_equal(dd_buf_str(&who), culprit);
    nccl_ras_done(&s);
}

/* The script that is rank 0 on another node has the PID of rank 2's Python. */
static void pid_that_contradicts_the_number_names_no_rank(void **state)
{
    static const int scripts[][2] = {{0, 3002}, {1, 2001}, {2, 2002}, {3, 2003}};
    static const int both[][2] = {{0, 3002}, {0, 3005}, {1, 2001}, {2, 2002}, {2, 3002}, {3, 2003}};
    (void)state;
    with_processes(scripts, 4,
                   COMM "AllReduce operation counts differ: 3 ranks at 812, "
                        "rank 2 of the communicator (pid 3002) at 811\n",
                   "");
    with_processes(both, 6,
                   COMM "AllReduce operation counts differ: ranks 0-1,3 at 812, rank 2 at 811\n",
                   "2");
}

/* A node sends the script and its Python for each worker, but no more. */
static void node_has_at_most_two_processes_for_each_worker(void **state)
{
    (void)state;
    for (int n = 4; n <= 5; n++) {
        DD_AUTO(stacks) struct stacks one = {0};
        DD_AUTO(stacks) struct stacks got = {0};
        DD_AUTO(buf) struct dd_buf wire = DD_BUF_INIT(STACKS_MESSAGE);
        for (int i = 0; i < n; i++)
            assert_int_equal(nccl_ras_add_process(&one.ras, i % 2, 3000 + i), 0);
        assert_int_equal(stacks_write(&one, STACKS_MESSAGE - 1, &wire), 0);
        assert_int_equal(stacks_parse(&got, dd_buf_str(&wire), 0, 2, NULL), n == 4 ? 0 : -EPROTO);
    }
}

/* What a node sends: the daemon adds the PIDs of all nodes before it looks for ranks. */
static void answer_of_one_node_is_merged_with_the_processes_of_all(void **state)
{
    static char text[ANSWER_MAX];
    DD_AUTO(stacks) struct stacks all = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    (void)state;
    for (int node = 0; node < 2; node++) {
        DD_AUTO(stacks) struct stacks one = {0};
        DD_AUTO(stacks) struct stacks got = {0};
        DD_AUTO(buf) struct dd_buf wire = DD_BUF_INIT(STACKS_MESSAGE);
        if (node == 1)
            assert_int_equal(nccl_ras_read(&one.ras, text, answer_of("two_communicators", text)),
                             0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(nccl_ras_add_process(&one.ras, 2 * node + i, 3000 + 2 * node + i), 0);
        assert_int_equal(stacks_write(&one, STACKS_MESSAGE - 1, &wire), 0);
        assert_int_equal(stacks_parse(&got, dd_buf_str(&wire), 2 * node, 1, NULL), -EPERM);
        stacks_done(&got);
        assert_int_equal(stacks_parse(&got, dd_buf_str(&wire), 2 * node + 1, 2, NULL), -EPERM);
        stacks_done(&got);
        assert_int_equal(stacks_parse(&got, dd_buf_str(&wire), 2 * node, 2, NULL), 0);
        assert_int_equal(stacks_add_node(&all, "n", 2 * node, 2), 0);
        assert_int_equal(stacks_merge(&all, &got), 0);
    }
    assert_int_equal(stacks_resolve(&all), 0);
    assert_int_equal(stacks_text_long(&all, &out), 0);
    assert_non_null(strstr(dd_buf_str(&out), "rank 2 at 8, rank 3 at 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_that_has_launched_fewer_operations_is_named),
        cmocka_unit_test(number_in_a_communicator_of_all_ranks_decides_between_equal_pids),
        cmocka_unit_test(rank_that_waits_elsewhere_holds_up_no_other),
        cmocka_unit_test(process_that_does_not_answer_is_named),
        cmocka_unit_test(rank_that_had_ended_is_no_culprit),
        cmocka_unit_test(errors_and_states_are_shown),
        cmocka_unit_test(unclear_counts_name_no_rank),
        cmocka_unit_test(text_of_another_program_is_refused),
        cmocka_unit_test(hostile_counts_are_bounded),
        cmocka_unit_test(pid_that_contradicts_the_number_names_no_rank),
        cmocka_unit_test(node_has_at_most_two_processes_for_each_worker),
        cmocka_unit_test(answer_of_one_node_is_merged_with_the_processes_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
