/* Which nodes report to the user that they find no daemon, and when an agent gives up the port that
 * it could not bind. */
#include "agent/locate_leader.h"
#include "agent/locate_local.h"

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

/* ---- the port is in use ---- */

struct look {
    enum link_listener listener;
    uint64_t at_ms;
    enum locate_local_step step;
};

static void look_in_turn(const struct look *looks, size_t n)
{
    struct locate_local_owner owner = {0};
    for (size_t i = 0; i < n; i++) {
        const enum locate_local_step step = locate_local_judge(&owner, looks[i].listener,
                                                               looks[i].at_ms);
        if (step != looks[i].step)
            fail_msg("look %zu: %d", i, (int)step);
    }
}
#define LOOK_IN_TURN(...)                                                                          \
    look_in_turn((const struct look[]){__VA_ARGS__},                                               \
                 sizeof((const struct look[]){__VA_ARGS__}) / sizeof(struct look))

static void another_program_is_given_up_after_its_own_time(void **state)
{
    (void)state;
    LOOK_IN_TURN({LINK_LISTENER_FOREIGN, 500, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_FOREIGN, 2499, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_FOREIGN, 2500, LOCATE_LOCAL_GIVE_UP});
    LOOK_IN_TURN({LINK_LISTENER_UNKNOWN, 500, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_SILENT, 1000, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_SILENT, 10999, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_SILENT, 11000, LOCATE_LOCAL_GIVE_UP});
    /* no look in between says who has the port */
    LOOK_IN_TURN({LINK_LISTENER_FOREIGN, 500, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_UNKNOWN, 2000, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_FOREIGN, 2600, LOCATE_LOCAL_GIVE_UP});
}

static void agent_that_had_the_port_may_have_lost_it_just_now(void **state)
{
    (void)state;
    LOOK_IN_TURN({LINK_LISTENER_OURS, 500, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_BUSY, 9000, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_FOREIGN, 60000, LOCATE_LOCAL_WAIT}, /* its connections end */
                 {LINK_LISTENER_NONE, 60500, LOCATE_LOCAL_LEAD});
    LOOK_IN_TURN({LINK_LISTENER_FOREIGN, 1500, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_OURS, 2000, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_FOREIGN, 4000, LOCATE_LOCAL_WAIT},
                 {LINK_LISTENER_FOREIGN, 6000, LOCATE_LOCAL_GIVE_UP});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_node_reports_what_all_wait_for),
        cmocka_unit_test(a_node_that_may_be_alone_with_it_reports_once),
        cmocka_unit_test(another_program_is_given_up_after_its_own_time),
        cmocka_unit_test(agent_that_had_the_port_may_have_lost_it_just_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
