/* The timers of the agent's machine in real processes, which a scheduler may suspend. */
#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "clock_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { SEEK_MS = 30000 };

static const struct rdzv_members none = {.tie = -1};

struct bed {
    struct alloc alloc;
    struct agent_cfg cfg;
    struct am_cfg machine;
    struct agent_loop loop;
};

static void act(void *arg, const struct am_action *what)
{
    (void)arg;
    (void)what;
}

/* Begin to look for the first daemon. */
static void bed_init(struct bed *b)
{
    *b = (struct bed){.alloc = {.index = 1},
                      .cfg = {.alloc = &b->alloc, .node_name = "n1"},
                      .machine = {.rdzv = &b->cfg.rdzv, .seek_ms = SEEK_MS}};
    assert_int_equal(agent_loop_init(&b->loop, &b->cfg, &b->machine, &none, NULL), 0);
    agent_loop_set_act(&b->loop, act, NULL);
    agent_step(&b->loop, (struct am_event){.kind = AM_SEEK});
    assert_int_equal(b->loop.machine.state, AM_SEEKING);
}

/* Let the process run for ms, and handle what is due. */
static void bed_run(struct bed *b, unsigned ms)
{
    for (unsigned i = 0; i < ms / CLOCK_STEP_MS; i++) {
        clock_skip(CLOCK_STEP_MS);
        (void)event_base_loop(b->loop.base, EVLOOP_NONBLOCK);
    }
}

static void time_of_a_suspended_process_does_not_count(void **state)
{
    (void)state;
    struct bed b;
    bed_init(&b);
    bed_run(&b, SEEK_MS / 3);
    clock_skip(10 * SEEK_MS);
    (void)event_base_loop(b.loop.base, EVLOOP_NONBLOCK);
    bed_run(&b, SEEK_MS / 3);
    assert_int_equal(b.loop.machine.state, AM_SEEKING);
    bed_run(&b, SEEK_MS);
    assert_int_equal(b.loop.machine.state, AM_LEAVING);
    agent_loop_done(&b.loop);
}

static void event_that_is_handled_before_the_timer_does_not_end_it(void **state)
{
    (void)state;
    struct bed b;
    bed_init(&b);
    clock_skip(10 * SEEK_MS);
    agent_step(&b.loop, (struct am_event){.kind = AM_PEERS_PROBED});
    (void)event_base_loop(b.loop.base, EVLOOP_NONBLOCK);
    assert_int_equal(b.loop.machine.state, AM_SEEKING);
    agent_loop_done(&b.loop);
}

static void limit_ends_the_search_of_a_process_that_runs(void **state)
{
    (void)state;
    struct bed b;
    bed_init(&b);
    bed_run(&b, SEEK_MS + 1000);
    assert_int_equal(b.loop.machine.state, AM_LEAVING);
    agent_loop_done(&b.loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_of_a_suspended_process_does_not_count),
        cmocka_unit_test(event_that_is_handled_before_the_timer_does_not_end_it),
        cmocka_unit_test(limit_ends_the_search_of_a_process_that_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
