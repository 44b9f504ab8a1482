/* report: stacks of workers are folded, ordered, shown and exchanged; those of a peer are checked.
 */
#include "report/native_stack.h"
#include "report/py_spy.h"
#include "report/stacks.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define USER "/home/u/train.py"
#define TORCH "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
#define REDUCE                                                                                     \
    "all_reduce\t" TORCH "\t2811\nwrapper\t/v/lib/python3.11/site-packages/torch/distributed/"     \
    "c10d_logger.py\t81\nstep\t" USER "\t81\nmain\t" USER "\t90\n"

static const struct stack reduce = {.kind = STACK_PYTHON, .frames = REDUCE};
static const struct stack read_data = {.kind = STACK_PYTHON,
                                       .frames = "read\t/home/u/data.py\t40\n"};

static void add(struct stacks *s, const struct stack *what, int first, int last)
{
    assert_int_equal(stacks_add(s, what, first, last), 0);
}

static void has_text(const struct stacks *s, int lines, const char *expected)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(100000);
    assert_int_equal(stacks_text(s, "  ", lines, &out), 0);
    assert_string_equal(dd_buf_str(&out), expected);
}

static void ranks_become_ranges_in_any_order(void **state)
{
    static const struct {
        int add[8];
        int n;
        const char *text;
    } rows[] = {
        {{0, 1, 2}, 3, "0-2"},
        {{2, 1, 0}, 3, "0-2"},
        {{0, 2, 1}, 3, "0-2"},
        {{5}, 1, "5"},
        {{0, 1, 3, 4, 7}, 5, "0-1,3-4,7"},
        {{7, 0, 4, 3, 1}, 5, "0-1,3-4,7"},
        {{1, 1, 1}, 3, "1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(rank_set) struct rank_set s = {0};
        DD_AUTO(rank_set) struct rank_set again = {0};
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
        for (int k = 0; k < rows[i].n; k++)
            assert_int_equal(rank_set_add(&s, rows[i].add[k], rows[i].add[k]), 0);
        assert_int_equal(rank_set_text(&s, &out), 0);
        assert_string_equal(dd_buf_str(&out), rows[i].text);
        assert_int_equal(rank_set_parse(&again, rows[i].text), 0);
        assert_int_equal(rank_set_count(&again), rank_set_count(&s));
        for (size_t n = 0; n < rank_set_count(&s); n++)
            assert_true(rank_set_has(&again, rank_set_nth(&s, n)));
        assert_int_equal(rank_set_nth(&s, rank_set_count(&s)), -1);
    }
}

static void a_set_of_ranks_knows_whether_it_shares_a_range(void **state)
{
    static const struct {
        int first, n;
        bool shared;
    } rows[] = {{0, 2, false}, {0, 3, true}, {2, 1, true},  {3, 1, true},  {4, 1, false},
                {4, 3, false}, {4, 4, true}, {0, 99, true}, {8, 9, false}, {2, 0, false}};
    DD_AUTO(rank_set) struct rank_set s = {0};
    (void)state;
    assert_int_equal(rank_set_parse(&s, "2-3,7"), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(rank_set_has_any(&s, rows[i].first, rows[i].n), rows[i].shared);
}

static void a_cut_list_of_ranks_says_so_and_counts_them(void **state)
{
    DD_AUTO(rank_set) struct rank_set s = {0};
    DD_AUTO(buf) struct dd_buf few = DD_BUF_INIT(1000);
    DD_AUTO(buf) struct dd_buf many = DD_BUF_INIT(1000);
    (void)state;
    for (int rank = 0; rank < 8; rank += 2)
        assert_int_equal(rank_set_add(&s, rank, rank), 0);
    assert_int_equal(rank_set_name(&s, &few), 0);
    assert_string_equal(dd_buf_str(&few), "ranks 0,2,4,6");
    for (int rank = 100; rank < 300; rank += 2)
        assert_int_equal(rank_set_add(&s, rank, rank), 0);
    assert_int_equal(rank_set_name(&s, &many), 0);
    assert_ptr_not_equal(strstr(dd_buf_str(&many), "ranks 0,2,4,6,100,102,"), NULL);
    assert_ptr_not_equal(strstr(dd_buf_str(&many), ",... (104 ranks)"), NULL);
    assert_true(many.len < 100);
}

static void lists_of_ranks_that_are_none_are_refused(void **state)
{
    static const char *const rows[] = {"",     "x",   "1,",        "-1",          "3-1", "1-",
                                       "1,,2", "1 2", "268435456", "99999999999", "0x1"};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(rank_set) struct rank_set s = {0};
        assert_int_equal(rank_set_parse(&s, rows[i]), -EINVAL);
    }
}

static void equal_stacks_are_one_line_and_the_rarest_comes_first(void **state)
{
    static const struct stack ended = {.kind = STACK_ENDED};
    static const struct stack kernel = {.kind = STACK_KERNEL,
                                        .state = "state D, kernel function nfs_wait",
                                        .note = "py-spy not found"};
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    add(&s, &ended, 9, 9);
    add(&s, &reduce, 0, 1);
    add(&s, &read_data, 2, 2);
    add(&s, &reduce, 3, 7);
    add(&s, &kernel, 8, 8);
    assert_int_equal(s.n, 4);
    stacks_sort(&s);
    has_text(&s, 20,
             "  rank 2: read, data.py:40\n"
             "  rank 8: state D, kernel function nfs_wait (py-spy not found)\n"
             "  ranks 0-1,3-7: all_reduce, train.py:81\n"
             "  rank 9: had ended\n");
    has_text(&s, 2, "  rank 2: read, data.py:40\n  9 more ranks, with 3 other stacks\n");
}

static void names_cannot_control_the_terminal(void **state)
{
    (void)state;
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    static const struct stack evil = {.kind = STACK_PYTHON,
                                      .frames = "f\xc2\x9b"
                                                "31m\t/x/\xe2\x80\xae"
                                                "a.py\t7\n"};
    assert_int_equal(stacks_add(&s, &evil, 0, 0), 0);
    assert_int_equal(stacks_text(&s, "", 5, &out), 0);
    assert_string_equal(dd_buf_str(&out), "rank 0: f?31m, ?a.py:7\n");
    dd_buf_clear(&out);
    assert_int_equal(stacks_text_long(&s, &out), 0);
    assert_string_equal(dd_buf_str(&out), "rank 0: f?31m, ?a.py:7\n    f?31m (/x/?a.py:7)\n");
}

static void the_node_is_named_where_a_group_is_on_one_of_several(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    assert_int_equal(stacks_add_node(&s, "node1", 0, 2), 0);
    assert_int_equal(stacks_add_node(&s, "node2", 2, 2), 0);
    add(&s, &read_data, 2, 2);
    add(&s, &reduce, 0, 1);
    add(&s, &reduce, 3, 3);
    stacks_sort(&s);
    has_text(&s, 20,
             "  rank 2 on node2: read, data.py:40\n  ranks 0-1,3: all_reduce, train.py:81\n");
}

static void headlines_show_the_line_of_the_user_and_what_it_calls(void **state)
{
    static const struct {
        struct stack s;
        const char *line;
    } rows[] = {
        {{.kind = STACK_PYTHON, .frames = "f\t<string>\t1\n"}, "f, <string>:1"},
        {{.kind = STACK_PYTHON, .frames = "wait\t/usr/lib/python3.11/threading.py\t320\n"},
         "wait, threading.py:320"},
        {{.kind = STACK_PYTHON, .frames = "_call\t<frozen importlib>\t1\nload\t" USER "\t7\n"},
         "import, train.py:7"},
        {{.kind = STACK_PYTHON,
          .frames = "inner\t/v/lib/python3.11/site-packages/torch/x.py\t1\nstep\t" USER "\t7\n"},
         "step, train.py:7"},
        {{.kind = STACK_PYTHON, .frames = "fit\t/v/lib/python3.11/site-packages/mylib/fit.py\t3\n"},
         "fit, fit.py:3"},
        {{.kind = STACK_PYTHON, .frames = ""}, "no Python frame"},
        {{.kind = STACK_PYTHON, .frames = "f\t/a.py\t1\n", .state = "stopped"},
         "f, a.py:1 (stopped)"},
        {{.kind = STACK_UNREAD, .frames = ""}, "not read"},
        {{.kind = STACK_UNREAD, .frames = "", .note = "lost"}, "lost"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(stacks) struct stacks s = {0};
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
        add(&s, &rows[i].s, 0, 0);
        assert_int_equal(stack_headline(&s.v[0].stack, &out), 0);
        assert_string_equal(dd_buf_str(&out), rows[i].line);
    }
}

static void too_many_different_stacks_count_without_content(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    for (int i = 0; i < STACKS_GROUPS + 50; i++) {
        char frames[40];
        (void)snprintf(frames, sizeof(frames), "f\ta.py\t%d\n", i);
        add(&s, &(struct stack){.kind = STACK_PYTHON, .frames = frames}, i, i);
    }
    assert_int_equal(s.n, STACKS_GROUPS + 1);
    assert_int_equal(rank_set_count(&s.v[STACKS_GROUPS].ranks), 50);
}

static void long_lists_of_ranks_are_cut_in_a_line(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    for (int i = 0; i < 400; i += 2)
        add(&s, &read_data, i, i);
    has_text(&s, 20,
             "  ranks 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,... (200 "
             "ranks): read, data.py:40\n");
}

static void stacks_survive_the_message(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(stacks) struct stacks again = {0};
    DD_AUTO(buf) struct dd_buf first = DD_BUF_INIT(STACKS_MESSAGE);
    DD_AUTO(buf) struct dd_buf second = DD_BUF_INIT(STACKS_MESSAGE);
    (void)state;
    add(&s, &reduce, 4, 5);
    add(&s, &read_data, 6, 6);
    assert_int_equal(stacks_write(&s, STACKS_MESSAGE - 1, &first), 0);
    assert_int_equal(stacks_parse(&again, dd_buf_str(&first), 4, 3, NULL), 0);
    assert_int_equal(stacks_write(&again, STACKS_MESSAGE - 1, &second), 0);
    assert_string_equal(dd_buf_str(&first), dd_buf_str(&second));
    assert_int_equal(again.nnodes, 0);
}

static void long_stacks_lose_outer_frames_in_a_short_message(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(stacks) struct stacks again = {0};
    DD_AUTO(buf) struct dd_buf frames = DD_BUF_INIT(STACKS_TEXT);
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(STACKS_MESSAGE);
    (void)state;
    for (int i = 0; i < STACKS_FRAMES; i++)
        assert_int_equal(dd_buf_printf(&frames, "f%d\t/a.py\t%d\n", i, i), 0);
    add(&s, &(struct stack){.kind = STACK_PYTHON, .frames = dd_buf_str(&frames)}, 0, 0);
    assert_int_equal(stacks_write(&s, 1000, &out), 0);
    assert_true(out.len <= 1000);
    assert_int_equal(stacks_parse(&again, dd_buf_str(&out), 0, 1, NULL), 0);
    assert_memory_equal(again.v[0].stack.frames, "f0\t/a.py\t0\n", 11);
    dd_buf_clear(&out);
    assert_int_equal(stacks_write(&s, 10, &out), -EMSGSIZE);
}

#define GROUP(ranks)                                                                               \
    "{\"ranks\":\"" ranks "\",\"kind\":\"ended\",\"state\":\"\",\"note\":\"\",\"frames\":[]}"

static void a_node_speaks_for_its_own_ranks_alone(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } rows[] = {
        {"{\"groups\":[" GROUP("4") "," GROUP("5-7") "]}", 0},
        {"{\"groups\":[]}", 0},
        {"{\"groups\":[" GROUP("3") "]}", -EPERM},
        {"{\"groups\":[" GROUP("4-8") "]}", -EPERM},
        {"{\"groups\":[" GROUP("4,8") "]}", -EPERM},
        {"{\"groups\":[" GROUP("4") "," GROUP("4") "]}", -EPERM},
        {"{\"groups\":[" GROUP("4-6") "," GROUP("5") "]}", -EPERM},
        {"{\"groups\":[" GROUP("") "]}", -EPROTO},
        {"{\"groups\":[" GROUP("x") "]}", -EPROTO},
        {"{\"groups\":[{}]}", -EPROTO},
        {"{\"groups\":{}}", -EPROTO},
        {"{}", -EPROTO},
        {"[]", -EPROTO},
        {"", -EPROTO},
        {"{\"groups\":[{\"ranks\":\"4\",\"kind\":\"odd\",\"state\":\"\",\"note\":\"\",\"frames\":[]}]}",
         -EPROTO},
        {"{\"groups\":[{\"ranks\":\"4\",\"kind\":\"python\",\"state\":\"\",\"note\":\"\",\"frames\":"
         "[{\"function\":\"f\"}]}]}",
         -EPROTO},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(stacks) struct stacks s = {0};
        struct dd_err err = {0};
        assert_int_equal(stacks_parse(&s, rows[i].text, 4, 4, &err), rows[i].rc);
        assert_int_equal(err.text[0] == '\0', rows[i].rc == 0);
    }
}

#define MP "/usr/lib/python3.11/multiprocessing/"
#define FORKED "run\t" MP "process.py\t108\n_bootstrap\t" MP "process.py\t314\n"
#define PARENT                                                                                     \
    "start\t" MP                                                                                   \
    "process.py\t121\n__iter__\t/v/site-packages/torch/utils/data/dataloader.py\t440\nmain\t" USER \
    "\t90\n"
#define LOADER                                                                                     \
    "_worker_loop\t/v/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py\t309\n"

static void it_is_known_whether_a_rank_waits_for_a_child(void **state)
{
    static const struct {
        const char *frames;
        bool waits;
    } rows[] = {
        {"select\t/usr/lib/python3.11/selectors.py\t416\nwait\t" MP
         "connection.py\t947\nstep\t" USER "\t81\n",
         true},
        {"_next_data\t/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py\t1288\nmain\t" USER
         "\t90\n",
         true},
        {"wait\t/usr/lib/python3.11/subprocess.py\t1264\nmain\t" USER "\t90\n", true},
        {"read\t" USER "\t3\nrun\t" MP "process.py\t108\n", false}, /* it is such a child */
        {REDUCE, false},
        {"", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(stack_waits_for_child(rows[i].frames), rows[i].waits);
}

static void a_child_has_only_the_frames_since_its_fork(void **state)
{
    static const char read[] = "read\t/home/u/data.py\t40\n" LOADER FORKED;
    (void)state;
    assert_int_equal(stack_child_own("read\t/home/u/data.py\t40\n" LOADER FORKED PARENT),
                     strlen(read));
    assert_int_equal(stack_child_own(REDUCE), strlen(REDUCE)); /* not forked by multiprocessing */
    assert_int_equal(stack_child_kind(read), STACK_CHILD_WORKS);
    assert_int_equal(stack_child_kind("get\t" MP "queues.py\t122\n" LOADER FORKED),
                     STACK_CHILD_WAITS);
    assert_int_equal(
        stack_child_kind("main\t" MP "resource_tracker.py\t239\n<module>\t<string>\t1\n"),
        STACK_CHILD_HELPER);
    assert_int_equal(stack_child_kind("select\t/usr/lib/python3.11/selectors.py\t468\nmain\t" MP
                                      "forkserver.py\t216\n"),
                     STACK_CHILD_HELPER);
    assert_int_equal(
        stack_child_kind("_call_with_frames_removed\t<frozen importlib._bootstrap>\t241\n"
                         "<module>\t<string>\t1\n"),
        STACK_CHILD_WAITS); /* a resource tracker that begins */
    assert_int_equal(stack_child_kind("<module>\t<string>\t1\n"), STACK_CHILD_WORKS);
    assert_true(stack_child_is_loader(read));
    assert_false(stack_child_is_loader(FORKED));
}

static void add_child(struct stacks *s, int rank, int pid, const char *frames)
{
    struct rank_range range = {rank, rank};
    const struct rank_set ranks = {.v = &range, .n = 1};
    const struct stack_child child = {.loader = stack_child_is_loader(frames),
                                      .pid = pid,
                                      .stack = {.kind = STACK_PYTHON, .frames = frames}};
    assert_int_equal(stack_children_add(&s->children, &child, 1, &ranks), 0);
}

static void equal_stacks_of_children_are_one_line_after_those_of_ranks(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(stacks) struct stacks again = {0};
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(STACKS_MESSAGE);
    static const char *const expected = "  ranks 4-6: all_reduce, train.py:81\n"
                                        "  rank 6, child process 99: read, data.py:40\n"
                                        "  ranks 4-5, 3 DataLoader processes: read, data.py:41\n";
    (void)state;
    add(&s, &reduce, 4, 6);
    add_child(&s, 4, 10, "read\t/home/u/data.py\t41\n" LOADER FORKED);
    add_child(&s, 4, 11, "read\t/home/u/data.py\t41\n" LOADER FORKED);
    add_child(&s, 5, 12, "read\t/home/u/data.py\t41\n" LOADER FORKED);
    add_child(&s, 6, 99, "read\t/home/u/data.py\t40\n");
    stacks_sort(&s);
    has_text(&s, 20, expected);
    assert_int_equal(stacks_write(&s, STACKS_MESSAGE - 1, &json), 0);
    assert_int_equal(stacks_parse(&again, dd_buf_str(&json), 4, 3, NULL), 0);
    stacks_sort(&again);
    has_text(&again, 20, expected);
}

static void further_stacks_of_children_are_omitted(void **state)
{
    DD_AUTO(stacks) struct stacks s = {0};
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(STACKS_MESSAGE);
    char frames[64];
    (void)state;
    add(&s, &reduce, 0, 99);
    for (int i = 0; i < 2 * STACK_CHILDREN_GROUPS; i++) {
        (void)snprintf(frames, sizeof(frames), "f%d\t/a.py\t1\n", i);
        add_child(&s, i % 100, 10 + i, frames);
    }
    assert_int_equal(s.children.n, STACK_CHILDREN_GROUPS);
    assert_int_equal(stacks_write(&s, 3000, &json), 0); /* without them, rather than nothing */
}

#define CHILD(ranks, n, pid)                                                                       \
    "{\"groups\":[],\"children\":[{\"ranks\":\"" ranks "\",\"processes\":" n ",\"pid\":" pid       \
    ",\"dataloader\":true,\"kind\":\"python\",\"state\":\"\",\"note\":\"\",\"frames\":[]}]}"

static void children_of_a_peer_are_checked(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } rows[] = {
        {CHILD("4", "1", "7"), 0},
        {CHILD("4-5", "8", "7"), 0},
        {CHILD("4-5", "9", "7"), -EPROTO},
        {CHILD("4", "0", "7"), -EPROTO},
        {CHILD("4", "1", "0"), -EPROTO},
        {CHILD("4", "1", "99999999"), -EPROTO},
        {CHILD("3", "1", "7"), -EPERM},
        {CHILD("4-8", "1", "7"), -EPERM},
        {CHILD("", "1", "7"), -EPROTO},
        {"{\"groups\":[],\"children\":[{}]}", -EPROTO},
        {"{\"groups\":[],\"children\":null}", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(stacks) struct stacks s = {0};
        assert_int_equal(stacks_parse(&s, rows[i].text, 4, 4, NULL), rows[i].rc);
    }
}

static void control_characters_of_a_peer_are_not_printed(void **state)
{
    static const char text[] =
        "{\"groups\":[{\"ranks\":\"0\",\"kind\":\"python\",\"state\":\"\",\"note\":\"\\u001b[2J\","
        "\"frames\":[{\"function\":\"a\\n\\tb\",\"file\":\"/x\\u0007.py\",\"line\":3}]}]}";
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    assert_int_equal(stacks_parse(&s, text, 0, 1, NULL), 0);
    has_text(&s, 20, "  rank 0: a??b, x?.py:3 (?[2J)\n");
}

/* ---- py-spy ---- */

#define THREAD(id, name, frames)                                                                   \
    "{\"pid\":7,\"os_thread_id\":" id ",\"thread_name\":" name ",\"frames\":[" frames "]}"
#define FRAME(name, file, line)                                                                    \
    "{\"name\":\"" name "\",\"filename\":\"" file "\",\"line\":" line ",\"locals\":null}"

static void the_main_thread_is_chosen_from_what_py_spy_prints(void **state)
{
    static const struct {
        const char *text, *frames;
        int rc;
    } rows[] = {
        {"[" THREAD("7", "null", FRAME("f", "/a.py", "3") "," FRAME("<module>", "/a.py", "9")) "]",
         "f\t/a.py\t3\n<module>\t/a.py\t9\n", 0},
        {"[" THREAD("8", "\"MainThread\"",
                    FRAME("g", "/a.py", "1")) "," THREAD("7", "null", FRAME("f", "/a.py", "3")) "]",
         "f\t/a.py\t3\n", 0},
        {"[" THREAD("8", "\"MainThread\"",
                    FRAME("g", "/a.py", "1")) "," THREAD("9", "null", FRAME("f", "/a.py", "3")) "]",
         "g\t/a.py\t1\n", 0},
        {"[" THREAD("9", "null", FRAME("f", "a\\tb", "-3")) "]\nwarning", "f\ta?b\t0\n", 0},
        {"[" THREAD("7", "null", "") "]", "", -ENODATA},
        {"[]", "", -ENODATA},
        {"{}", "", -EPROTO},
        {"", "", -EPROTO},
        {"[" THREAD("7", "null", "{}") "]", "", -EPROTO},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(2 * STACKS_TEXT);
        assert_int_equal(py_spy_parse(rows[i].text, strlen(rows[i].text), 7, &out), rows[i].rc);
        assert_string_equal(dd_buf_str(&out), rows[i].frames);
    }
}

static void the_reason_of_a_failure_is_one_line(void **state)
{
    static const struct {
        const char *text, *reason;
    } rows[] = {
        {"Error: Failed to find python version from target process\nReason: x\n",
         "py-spy: Failed to find python version from target process"},
        {"Permission Denied: Try running again with elevated permissions\n",
         "py-spy: ptrace is not permitted"},
        {"Error: x\nReason: Operation not permitted (os error 1)\n",
         "py-spy: ptrace is not permitted"},
        {"", "py-spy: no output"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
        assert_int_equal(py_spy_reason(rows[i].text, &out), 0);
        assert_string_equal(dd_buf_str(&out), rows[i].reason);
    }
}

static void native_frames_are_read_from_both_tools(void **state)
{
    static const struct {
        const char *text, *frames;
        int rc;
    } rows[] = {
        {"PID 7 - process\nTID 7:\n"
         "#0  0x00007fe70f6d2dd0 pause - /usr/lib/libc.so.6\n    ../sysdeps/pause.c:29:10\n"
         "#1  0x00005587ab6fa142 inner(int, char*) - /tmp/w\n    /tmp/w.c:2:26\n"
         "#2  0x00005587ab6fa071 - /tmp/w\n"
         "TID 8:\n#0  0x00007fe70f6d2dd0 poll - /usr/lib/libc.so.6\n",
         "pause\t/usr/lib/libc.so.6\t0\ninner(int, char*)\t/tmp/w.c\t2\n??\t/tmp/w\t0\n", 0},
        {"[Thread debugging using libthread_db enabled]\n"
         "0x00007fe70f6d2dd0 in pause () from /lib/libc.so.6\n"
         "#0  0x00007fe70f6d2dd0 in pause () from /lib/libc.so.6\n"
         "#1  step (n=...) at prog.c:12\n"
         "#2  0x00007fe70f6d2dd0 in ?? ()\n"
         "[Inferior 1 (process 7) detached]\n",
         "pause\t/lib/libc.so.6\t0\nstep\tprog.c\t12\n??\t\t0\n", 0},
        {"eu-stack: no such process\n", "", -ENODATA},
        {"", "", -ENODATA},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
        assert_int_equal(native_stack_parse(rows[i].text, &out), rows[i].rc);
        assert_string_equal(dd_buf_str(&out), rows[i].frames);
    }
}

static void native_frames_stand_below_those_of_python(void **state)
{
    static const char python[] = "step\t/home/u/train.py\t81\n";
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1000);
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    assert_int_equal(native_stack_merge("pause\t/lib/libc.so.6\t0\n"
                                        "_PyEval_EvalFrameDefault\t/lib/libpython3.so\t0\n"
                                        "main\t/usr/bin/python3\t0\n",
                                        python, &out),
                     0);
    assert_string_equal(dd_buf_str(&out),
                        "pause\tnative:/lib/libc.so.6\t0\nstep\t/home/u/train.py\t81\n");
    add(&s, &(struct stack){.kind = STACK_PYTHON, .frames = dd_buf_str(&out)}, 0, 0);
    has_text(&s, 20, "  rank 0: step, train.py:81\n"); /* the line of the user, as without them */
    dd_buf_clear(&out);
    assert_int_equal(native_stack_merge("pause\t/lib/libc.so.6\t0\n", python, &out), 0);
    assert_string_equal(dd_buf_str(&out), python);
    dd_buf_clear(&out);
    assert_int_equal(native_stack_merge("", python, &out), 0);
    assert_string_equal(dd_buf_str(&out), python);
}

static void native_programs_have_a_headline(void **state)
{
    static const struct stack waits = {
        .kind = STACK_KERNEL,
        .frames = "poll\t/lib/libc.so.6\t0\nMPI_Allreduce\t/usr/lib/libmpi.so.40\t0\n"
                  "step\t/home/u/prog.c\t12\nmain\t/home/u/prog.c\t40\n",
        .state = "state S"};
    DD_AUTO(stacks) struct stacks s = {0};
    (void)state;
    add(&s, &waits, 0, 3);
    has_text(&s, 20, "  ranks 0-3: MPI_Allreduce, prog.c:12 (state S)\n");
}

static void a_tip_says_how_to_read_what_was_not_permitted(void **state)
{
    static const struct {
        const char *note, *part;
    } rows[] = {
        {"reading its memory is not permitted: kernel.yama.ptrace_scope is 1",
         "ptrace_scope on the nodes to 0"},
        {"reading its memory is not permitted: kernel.yama.ptrace_scope is 2", "CAP_SYS_PTRACE"},
        {"reading its memory is not permitted: kernel.yama.ptrace_scope is 3", "boot the nodes"},
        {"reading its memory is not permitted", "dumpable"},
        {"py-spy: ptrace is not permitted", "CAP_SYS_PTRACE"},
        {"reading its memory blocks", NULL},
        {"no native frames: neither eu-stack nor gdb found", "elfutils"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(stacks) struct stacks s = {0};
        add(&s, &reduce, 0, 3);
        add(&s, &(struct stack){.kind = STACK_KERNEL, .state = "state S", .note = rows[i].note}, 4,
            5);
        const char *tip = stacks_tip(&s);
        assert_true((tip != NULL) == (rows[i].part != NULL));
        assert_true(tip == NULL || strstr(tip, rows[i].part) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_cannot_control_the_terminal),
        cmocka_unit_test(ranks_become_ranges_in_any_order),
        cmocka_unit_test(a_set_of_ranks_knows_whether_it_shares_a_range),
        cmocka_unit_test(a_cut_list_of_ranks_says_so_and_counts_them),
        cmocka_unit_test(lists_of_ranks_that_are_none_are_refused),
        cmocka_unit_test(equal_stacks_are_one_line_and_the_rarest_comes_first),
        cmocka_unit_test(the_node_is_named_where_a_group_is_on_one_of_several),
        cmocka_unit_test(headlines_show_the_line_of_the_user_and_what_it_calls),
        cmocka_unit_test(too_many_different_stacks_count_without_content),
        cmocka_unit_test(long_lists_of_ranks_are_cut_in_a_line),
        cmocka_unit_test(stacks_survive_the_message),
        cmocka_unit_test(long_stacks_lose_outer_frames_in_a_short_message),
        cmocka_unit_test(a_node_speaks_for_its_own_ranks_alone),
        cmocka_unit_test(it_is_known_whether_a_rank_waits_for_a_child),
        cmocka_unit_test(a_child_has_only_the_frames_since_its_fork),
        cmocka_unit_test(equal_stacks_of_children_are_one_line_after_those_of_ranks),
        cmocka_unit_test(further_stacks_of_children_are_omitted),
        cmocka_unit_test(children_of_a_peer_are_checked),
        cmocka_unit_test(control_characters_of_a_peer_are_not_printed),
        cmocka_unit_test(the_main_thread_is_chosen_from_what_py_spy_prints),
        cmocka_unit_test(the_reason_of_a_failure_is_one_line),
        cmocka_unit_test(a_tip_says_how_to_read_what_was_not_permitted),
        cmocka_unit_test(native_frames_are_read_from_both_tools),
        cmocka_unit_test(native_frames_stand_below_those_of_python),
        cmocka_unit_test(native_programs_have_a_headline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
