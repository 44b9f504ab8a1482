/* alloc: the nodes that Slurm or PBS takes out of service, from the output of its command. */
#include "alloc/node_marks.h"

#include "base/auto.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static const struct alloc_marks_row *row_of(const char *source)
{
    static const char *const none[] = {NULL};
    return alloc_marks_find(source, (char *const *)(uintptr_t)none);
}

#define NODE(name, state, rest)                                                                    \
    "NodeName=" name " Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 OS=Linux 6.1 #1 SMP @0  "          \
    "RealMemory=4000 State=" state " ThreadsPerCore=1 Owner=N/A ExtSensorsTemp=n/s" rest "\n"

static void the_state_of_each_node_is_read(void **state)
{
    static const struct {
        const char *source, *text, *marks;
        int nodes;
    } rows[] = {
        {"slurm-step", NODE("n1", "MIXED", "") NODE("n2", "ALLOCATED", ""), "", 2},
        {"slurm-step",
         NODE("n1", "MIXED", "")
             NODE("n2", "MIXED+DRAIN", " Reason=bad DIMM [root@2026-11-23T16:59:52]"),
         "n2\tbeing drained by Slurm (reason: bad DIMM [root@2026-11-23T16:59:52])\n", 2},
        {"slurm-batch", NODE("n1", "DRAINING*", ""), "n1\tbeing drained by Slurm\n", 1},
        {"slurm-batch", NODE("n1", "ALLOCATED+FAIL", ""), "n1\tmarked as failing by Slurm\n", 1},
        {"slurm-batch", NODE("n1", "MIXED+MAINTENANCE+RESERVED", ""),
         "n1\tput into maintenance by Slurm\n", 1},
        {"slurm-batch", NODE("n1", "DOWN*+NOT_RESPONDING", ""), "n1\tmarked as down by Slurm\n", 1},
        {"slurm-batch", NODE("n1", "DOWN+DRAIN", ""), "n1\tbeing drained by Slurm\n", 1},
        /* no state that ends a node's service */
        {"slurm-batch", NODE("n1", "MIXED+PLANNED", "") NODE("n2", "MIXED+REBOOT_REQUESTED", ""),
         "", 2},
        {"slurm-batch", NODE("n1", "DRAINABLE", "") NODE("n2", "XDRAIN", ""), "", 2},
        /* text of an administrator is no state, and ends no line of ours */
        {"slurm-batch", NODE("n1", "MIXED", " Reason=was State=DOWN [root@2026-11-23T16:59:52]"),
         "", 1},
        {"slurm-batch",
         NODE("n1", "MIXED+DRAIN", " Reason=a\tb\033[31m [r@2026] ReservationName=x"),
         "n1\tbeing drained by Slurm (reason: a?b?[31m [r@2026])\n", 1},
        /* other lines */
        {"slurm-batch", "Node nodex not found\n", "", 0},
        {"slurm-batch", "NodeName= State=DOWN\nNodeName=n1\nNodeName=n2 State=\n", "", 0},
        {"slurm-batch", "NodeName=n1\t State=DOWN\n", "", 0},
        {"slurm-batch", "", "", 0},
        {"pbs", "n1\n     Mom = n1\n     state = free\n\nn2\n     state = job-busy\n", "", 2},
        {"pbs", "n1\n     state = offline\n     comment = broken fan = hot\n     license = l\n\n",
         "n1\ttaken offline by PBS (reason: broken fan = hot)\n", 1},
        {"pbs", "n1\n     state = job-exclusive,offline\n     note = torque\nn2\n     state = free",
         "n1\ttaken offline by PBS (reason: torque)\n", 2},
        {"pbs", "n1\n\tstate = maintenance\n", "n1\tput into maintenance by PBS\n", 1},
        {"pbs", "n1\n     state = state-unknown,down\n", "n1\tmarked as down by PBS\n", 1},
        {"pbs", "n1\n     comment = state = offline\n     state = free\n", "", 1},
        {"pbs", "n1\n     last_state = offline\n     state = stale\n", "", 1},
        {"pbs", "Node: nodex,  Error: Unknown node \n", "", 0},
        {"pbs", "     state = offline\n", "", 0},
        {"pbs", "n1\n\n     state = offline\n", "", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
        const int n = alloc_marks_read(row_of(rows[i].source), rows[i].text, &out);
        if (n != rows[i].nodes || strcmp(dd_buf_str(&out), rows[i].marks) != 0)
            fail_msg("row %zu: %d nodes, '%s'", i, n, dd_buf_str(&out));
    }
}

static void a_long_reason_is_cut(void **state)
{
    char text[600];
    char reason[400];
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    (void)state;
    memset(reason, 'x', sizeof(reason));
    reason[sizeof(reason) - 1] = '\0';
    (void)snprintf(text, sizeof(text), "NodeName=n1 State=DRAIN Reason=%s", reason);
    assert_int_equal(alloc_marks_read(row_of("slurm-step"), text, &out), 1);
    assert_true(strlen(dd_buf_str(&out)) < 180);
    assert_non_null(strstr(dd_buf_str(&out), "xxx...)\n"));
}

static void a_full_buffer_is_an_error(void **state)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(10);
    (void)state;
    assert_int_equal(alloc_marks_read(row_of("slurm-step"), NODE("n1", "DRAIN", ""), &out),
                     -EMSGSIZE);
}

static void one_command_asks_for_all_nodes(void **state)
{
    static const struct {
        const char *source, *nodes;
        bool hosts, others;
        const char *words;
    } rows[] = {
        {"slurm-step", "n[1-3],m", false, false, "scontrol show node -o n[1-3],m"},
        {"pbs", "n[1-3],m", false, false, "pbsnodes n1 n2 n3 m"},
        {"pbs", "n1.net,m", false, true, "pbsnodes n1.net m"},
        {"pbs", "n1.net,m", true, true, "pbsnodes n1 m"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct alloc_marks_row *row = row_of(rows[i].source);
        DD_AUTO(hostlist) struct hostlist *nodes = NULL;
        DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(4096);
        struct alloc_marks_words c = {0};
        assert_int_equal(hostlist_parse(&nodes, rows[i].nodes, NULL), 0);
        assert_int_equal(alloc_marks_command(row, nodes, rows[i].hosts, &c), 0);
        for (size_t k = 0; k < c.words.n; k++)
            (void)dd_buf_printf(&text, "%s%s", k > 0 ? " " : "", c.words.v[k]);
        assert_string_equal(dd_buf_str(&text), rows[i].words);
        assert_true((c.directory != NULL) == (strcmp(rows[i].source, "pbs") == 0));
        assert_true(alloc_marks_other_names(row, nodes) == rows[i].others);
        dd_strv_done(&c.words);
    }
}

static void the_scheduler_is_found(void **state)
{
    static const char *const slurm[] = {"SLURM_JOB_ID=1", NULL};
    static const char *const pbs[] = {"PBS_JOBID=1.head", NULL};
    static const char *const none[] = {"SLURM_JOB_ID=", NULL};
    (void)state;
    assert_string_equal(alloc_marks_scheduler(alloc_marks_find("pbs", (char **)(uintptr_t)slurm)),
                        "PBS");
    assert_string_equal(alloc_marks_scheduler(alloc_marks_find("", (char **)(uintptr_t)slurm)),
                        "Slurm");
    assert_string_equal(alloc_marks_scheduler(alloc_marks_find("hosts", (char **)(uintptr_t)pbs)),
                        "PBS");
    assert_null(alloc_marks_find("local", (char **)(uintptr_t)none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_of_each_node_is_read),
        cmocka_unit_test(a_long_reason_is_cut),
        cmocka_unit_test(a_full_buffer_is_an_error),
        cmocka_unit_test(one_command_asks_for_all_nodes),
        cmocka_unit_test(the_scheduler_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
