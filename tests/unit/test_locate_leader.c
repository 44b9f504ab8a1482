/* Which nodes report to the user that they find no daemon. */
#include "agent/locate_leader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static void one_node_reports_what_all_wait_for(void **state)
{
    static const struct {
        struct locate_wait wait;
        bool reports;
    } rows[] = {
        {{.nnodes = 8, .index = 7, .for_daemon = true, .seconds = 5}, true},
        {{.nnodes = 9, .index = 1, .for_daemon = true, .seconds = 5}, true},
        {{.nnodes = 9, .index = 1, .for_daemon = true, .seconds = 600, .reported = true}, true},
        {{.nnodes = 9, .index = 2, .for_daemon = true, .seconds = 5}, false},
        {{.nnodes = 9, .index = 2, .for_daemon = true, .seconds = 59}, false},
        {{.nnodes = 9, .index = 2, .for_daemon = false, .seconds = 5}, true},
        {{.nnodes = 9, .index = 2, .for_daemon = false, .seconds = 600, .reported = true}, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (locate_leader_reports(&rows[i].wait) != rows[i].reports)
            fail_msg("row %zu", i);
}

static void a_node_that_may_be_alone_with_it_reports_once(void **state)
{
    struct locate_wait w = {.nnodes = 4096, .index = 4095, .for_daemon = true, .seconds = 60};
    (void)state;
    assert_true(locate_leader_reports(&w));
    w.reported = true;
    w.seconds = 120;
    assert_false(locate_leader_reports(&w));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_reports_what_all_wait_for),
        cmocka_unit_test(a_node_that_may_be_alone_with_it_reports_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
