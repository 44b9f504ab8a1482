/* The agent's state machine: its transition table, and its behaviour in virtual time. */
#include "agent/agent_machine.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool has_workers(enum am_state s)
{
    return s == AM_RUNNING || s == AM_STRANDED || s == AM_ENDING;
}

/* ---- the table ---- */

#define FOR_EACH_EDGE(s, e, next)                                                                  \
    for (enum am_state s = 0; s < AM_STATES; s++)                                                  \
        for (enum am_event_kind e = 0; e < AM_EVENTS; e++)                                         \
            for (enum am_state next = agent_machine_edge(s, e); next != AM_STATES; next = AM_STATES)

static void every_state_is_reached_and_ends_in_leaving(void **state)
{
    (void)state;
    bool reached[AM_STATES] = {[AM_STARTING] = true};
    bool leaves[AM_STATES] = {[AM_LEAVING] = true};
    for (int pass = 0; pass < AM_STATES; pass++)
        FOR_EACH_EDGE(s, e, next)
        {
            reached[next] |= reached[s];
            leaves[s] |= leaves[next];
        }
    for (enum am_state s = 0; s < AM_STATES; s++) {
        assert_true(reached[s]);
        assert_true(leaves[s]);
        assert_non_null(agent_machine_state_name(s));
    }
    for (enum am_event_kind e = 0; e < AM_EVENTS; e++)
        assert_non_null(agent_machine_event_name(e));
}

static void nothing_leads_out_of_leaving(void **state)
{
    (void)state;
    for (enum am_event_kind e = 0; e < AM_EVENTS; e++)
        assert_true(agent_machine_edge(AM_LEAVING, e) == AM_LEAVING ||
                    agent_machine_edge(AM_LEAVING, e) == AM_STATES);
}

static void no_node_leaves_its_workers_behind(void **state)
{
    (void)state;
    FOR_EACH_EDGE(s, e, next)
    {
        if (has_workers(s) && !has_workers(next))
            assert_true(e == AM_WORKERS_GONE || e == AM_NOT_STARTED);
        if (!has_workers(s) && has_workers(next))
            assert_true(e == AM_PLAN && next == AM_RUNNING && agent_machine_is_linked(s));
    }
}

static void done_follows_drained_signals_and_the_health_check(void **state)
{
    (void)state;
    FOR_EACH_EDGE(s, e, next)
    {
        if (next == AM_IDLE && s != AM_IDLE)
            assert_true(s == AM_CHECKING && e == AM_CHECKED);
        if (next == AM_CHECKING && s != AM_CHECKING)
            assert_true((s == AM_SETTLING && e == AM_SETTLED) ||
                        (s == AM_RUNNING && e == AM_NOT_STARTED));
        if (next == AM_SETTLING && s != AM_SETTLING)
            assert_true(s == AM_RUNNING && e == AM_WORKERS_GONE);
    }
}

static void every_linked_state_takes_the_end_of_the_job_and_of_the_link(void **state)
{
    (void)state;
    for (enum am_state s = 0; s < AM_STATES; s++) {
        if (!agent_machine_is_linked(s))
            continue;
        const enum am_state end = has_workers(s) ? AM_ENDING : AM_LEAVING;
        assert_int_equal(agent_machine_edge(s, AM_FINISH), end);
        assert_int_equal(agent_machine_edge(s, AM_LOST), end);
        assert_int_equal(agent_machine_edge(s, AM_LOST_NO_MEMORY), end);
        assert_int_equal(agent_machine_edge(s, AM_LOST_FAIL_OVER),
                         has_workers(s) ? AM_STRANDED : AM_FAILING_OVER);
        assert_int_equal(agent_machine_edge(s, AM_REFUSE), s == AM_TRYING ? AM_FAILING_OVER : end);
        assert_int_equal(agent_machine_edge(s, AM_UNANSWERED), end);
        assert_int_equal(agent_machine_edge(s, AM_SIGNAL), s);
    }
}

/* ---- one machine in virtual time ---- */

static int members[] = {0, 1, 2};
static const struct rdzv_members three = {.tie = 0, .n = 3, .index = members};
static const struct rdzv_members none = {.tie = -1};
static const struct rdzv_cfg rdzv = {.min_nodes = 1, .max_nodes = 3, .max_restarts = 3};

struct bed {
    struct am_cfg cfg;
    struct agent_machine m;
    uint64_t now;
};

static struct bed *bed_new(const struct rdzv_members *last, int index)
{
    struct bed *b = calloc(1, sizeof(*b));
    assert_non_null(b);
    b->cfg = (struct am_cfg){
        .rdzv = &rdzv, .asks_peers = true, .seek_ms = 60000, .rejoin_ms = 30000, .grace_ms = 5000};
    agent_machine_init(&b->m, &b->cfg, last);
    b->m.index = index;
    b->now = 1000;
    return b;
}

static bool is_among(const int *kinds, enum am_action_kind kind)
{
    for (; *kinds >= 0; kinds++)
        if (*kinds == (int)kind)
            return true;
    return false;
}

/* Pass the event to the machine and check its actions, in order, and its next state. */
#define TAKE(b, event, to, ...)                                                                    \
    take(b, &(struct am_event){.kind = event}, to, (const int[]){__VA_ARGS__ __VA_OPT__(, ) - 1})
#define EVENT(...) (&(struct am_event){__VA_ARGS__})
#define TAKE_WITH(b, to, fields, ...)                                                              \
    take(b, fields, to, (const int[]){__VA_ARGS__ __VA_OPT__(, ) - 1})

static void take(struct bed *b, const struct am_event *e, enum am_state to, const int *kinds)
{
    struct am_action a;
    agent_machine_step(&b->m, e, b->now);
    for (; *kinds >= 0; kinds++) {
        assert_true(agent_machine_next(&b->m, &a));
        assert_int_equal(a.kind, *kinds);
    }
    assert_false(agent_machine_next(&b->m, &a));
    assert_string_equal(agent_machine_state_name(b->m.state), agent_machine_state_name(to));
}

/* Check that the next timer is this one and due after ms; advance the time. */
static void wait_for(struct bed *b, enum am_event_kind timer, uint64_t ms)
{
    assert_int_equal(agent_machine_timer(&b->m), b->now + ms);
    assert_int_equal(agent_machine_due(&b->m, b->now + ms - 1), AM_EVENTS);
    b->now += ms;
    assert_int_equal(agent_machine_due(&b->m, b->now), timer);
}

static void joined(struct bed *b)
{
    TAKE(b, AM_SEEK, AM_SEEKING, AM_DO_LOCATE);
    TAKE(b, AM_FOUND, AM_JOINED, AM_DO_JOIN);
}

static void running(struct bed *b)
{
    joined(b);
    TAKE(b, AM_PLAN, AM_RUNNING, AM_DO_END_SEARCHES, AM_DO_START_ROUND);
    assert_int_equal(agent_machine_timer(&b->m), RDZV_NEVER);
}

static void leading(struct bed *b)
{
    TAKE(b, AM_LEAD, AM_LEADING, AM_DO_END_SEARCHES, AM_DO_STOP_DAEMON, AM_DO_START_DAEMON);
}

static void failing_over(struct bed *b)
{
    running(b);
    TAKE(b, AM_LOST, AM_STRANDED, AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_STOP_WORKERS);
    TAKE(b, AM_WORKERS_GONE, AM_FAILING_OVER, AM_DO_END_SEARCHES, AM_DO_ASK_MEMBERS);
}

/* Edges that no scenario takes. */
enum { RARE_ACTIONS = 6 };
static const struct {
    enum am_state from;
    enum am_event_kind event;
    enum am_state to;
    int code; /* exit code of the agent; 0: unchanged */
    int n;
    enum am_action_kind actions[RARE_ACTIONS];
} rare[] = {
    {AM_IDLE, AM_FOUND, AM_IDLE, 0, 1, {AM_DO_DROP}},
    {AM_IDLE, AM_OTHER_TAKES, AM_IDLE, 0, 1, {AM_DO_DROP_OTHER}},
    {AM_IDLE, AM_OTHER_REFUSES, AM_IDLE, 0, 1, {AM_DO_DROP_OTHER}},
    {AM_IDLE, AM_OTHER_ENDED, AM_IDLE, 0, 1, {AM_DO_DROP_OTHER}},
    {AM_IDLE, AM_ROUND_MEMBERS, AM_IDLE, 0, 0, {0}},
    {AM_IDLE, AM_STOP, AM_IDLE, 0, 0, {0}},
    {AM_IDLE, AM_ROUND_STARTED, AM_IDLE, 0, 1, {AM_DO_END_SEARCHES}},
    {AM_IDLE, AM_PROBE_REQUEST, AM_CONTENDING, 0, 2, {AM_DO_END_SEARCHES, AM_DO_ASK_MEMBERS}},
    {AM_IDLE, AM_REFUSE, AM_LEAVING, 2, 3, {AM_DO_REPORT, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_IDLE, AM_LOST, AM_LEAVING, 1, 4, {AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_LEAVING, AM_LOST, AM_LEAVING, 0, 2, {AM_DO_DROP_LINK, AM_DO_EXIT}},
    {AM_LEADING,
     AM_LOST_NO_MEMORY,
     AM_LEAVING,
     2,
     5,
     {AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_SIGNAL_DAEMON, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_RUNNING,
     AM_LOST_NO_MEMORY,
     AM_ENDING,
     1,
     4,
     {AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_SIGNAL_DAEMON, AM_DO_STOP_WORKERS}},
    {AM_ENDING, AM_LOST_NO_MEMORY, AM_ENDING, 0, 1, {AM_DO_DROP_LINK}},
    {AM_BYE_SENT, AM_LOST_NO_MEMORY, AM_LEAVING, 0, 3, {AM_DO_DROP_LINK, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_STARTING, AM_LOST, AM_STARTING, 0, 1, {AM_DO_DROP_LINK}},
    {AM_STARTING, AM_LOST_NO_MEMORY, AM_STARTING, 0, 1, {AM_DO_DROP_LINK}},
    {AM_SEEKING, AM_FAILED, AM_LEAVING, 7, 2, {AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_SEEKING,
     AM_STOP_AT_ONCE,
     AM_LEAVING,
     128 + SIGINT,
     3,
     {AM_DO_SIGNAL_DAEMON, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_SEEKING,
     AM_GUARDIAN_LOST,
     AM_LEAVING,
     128 + SIGINT,
     5,
     {AM_DO_END_SEARCHES, AM_DO_DROP_LINK, AM_DO_SIGNAL_DAEMON, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_SEEKING, AM_PEERS_DUE, AM_SEEKING, 0, 1, {AM_DO_ASK_PEERS}},
    {AM_LEADING, AM_CANNOT_LEAD, AM_LEAVING, 2, 3, {AM_DO_REPORT, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_RUNNING, AM_UNREADABLE, AM_ENDING, 2, 2, {AM_DO_SEND_BYE, AM_DO_STOP_WORKERS}},
    {AM_RUNNING, AM_REFUSE, AM_ENDING, 2, 2, {AM_DO_REPORT, AM_DO_STOP_WORKERS}},
    {AM_STARTING, AM_SIGNAL_AGAIN, AM_LEAVING, 128 + SIGINT, 2, {AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_FAILING_OVER, AM_SIGNAL_AGAIN, AM_LEAVING, 128 + SIGINT, 2, {AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_TRYING, AM_ROUND_STARTED, AM_JOINED, 0, 1, {AM_DO_END_SEARCHES}},
    {AM_TRYING, AM_PROBE_REQUEST, AM_TRYING, 0, 0, {0}},
    {AM_CONTENDING, AM_ROUND_STARTED, AM_JOINED, 0, 1, {AM_DO_END_SEARCHES}},
    {AM_CONTENDING,
     AM_OTHER_ENDED,
     AM_JOINED,
     0,
     4,
     {AM_DO_DROP_LINK, AM_DO_STOP_DAEMON, AM_DO_MOVE, AM_DO_END_SEARCHES}},
    {AM_BYE_SENT, AM_LOST, AM_LEAVING, 0, 3, {AM_DO_DROP_LINK, AM_DO_LEAVE, AM_DO_EXIT}},
    {AM_LEAVING, AM_SIGNAL_AGAIN, AM_LEAVING, 0, 2, {AM_DO_SIGNAL_DAEMON, AM_DO_EXIT}},
    {AM_LEAVING, AM_STOP_AT_ONCE, AM_LEAVING, 128 + SIGINT, 2, {AM_DO_SIGNAL_DAEMON, AM_DO_EXIT}},
    {AM_LEAVING, AM_DAEMON_REPORTED, AM_LEAVING, 0, 2, {AM_DO_SIGNAL_DAEMON, AM_DO_EXIT}},
};

static void rare_events_lead_to_their_state_by_their_actions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rare) / sizeof(rare[0]); i++) {
        struct bed *b = bed_new(rare[i].event == AM_PROBE_REQUEST ? &three : &none, 1);
        int kinds[RARE_ACTIONS + 1] = {0};
        const bool again = rare[i].event == AM_SIGNAL_AGAIN;
        b->m.state = rare[i].from;
        b->m.pending = has_workers(rare[i].from) ? AM_PENDING_WORKERS : 0;
        b->m.sig = again ? SIGTERM : 0;
        for (int k = 0; k < rare[i].n; k++)
            kinds[k] = (int)rare[i].actions[k];
        kinds[rare[i].n] = -1;
        take(
            b,
            &(struct am_event){.kind = again ? AM_SIGNAL : rare[i].event, .sig = SIGINT, .code = 7},
            rare[i].to, kinds);
        assert_int_equal(b->m.code, rare[i].code);
        free(b);
    }
}

static void rare_events_change_what_the_node_waits_for(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    running(b);
    TAKE_WITH(b, AM_RUNNING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM), AM_DO_SEND_STOP);
    b->m.state = AM_IDLE; /* STOP answers the request in this state, too */
    TAKE_WITH(b, AM_IDLE, EVENT(.kind = AM_STOP, .code = SIGTERM));
    assert_int_equal(agent_machine_timer(&b->m), RDZV_NEVER);
    b->m.lost_at = 5;
    TAKE(b, AM_ROUND_MEMBERS, AM_IDLE);
    assert_int_equal(b->m.lost_at, 0);
    free(b);
    b = bed_new(&three, 1);
    b->m.state = AM_CONTENDING;
    TAKE(b, AM_FAIL_OVER_LIMIT, AM_CONTENDING);
    wait_for(b, AM_FAIL_OVER_LIMIT, 1000);
    b->m.state = AM_LEAVING;
    b->m.pending = AM_PENDING_REQUEUE;
    TAKE(b, AM_LOST_FAIL_OVER, AM_LEAVING, AM_DO_DROP_LINK);
    free(b);
    b = bed_new(&none, 1);
    b->m.state = AM_SEEKING;
    TAKE_WITH(b, AM_SEEKING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM), AM_DO_SEND_STOP);
    TAKE(b, AM_UNANSWERED, AM_LEAVING, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 128 + SIGTERM);
    free(b);
    b = bed_new(&none, 1);
    b->m.state = AM_SEEKING;
    TAKE_WITH(b, AM_SEEKING, EVENT(.kind = AM_PEERS_PROBED));
    wait_for(b, AM_PEERS_DUE, 3000);
    free(b);
}

static void round_ends_with_done_and_the_job_with_its_code(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    running(b);
    TAKE(b, AM_WORKERS_GONE, AM_SETTLING, AM_DO_DRAIN_SIGNALS);
    TAKE(b, AM_SETTLED, AM_CHECKING, AM_DO_CHECK_HEALTH);
    TAKE(b, AM_CHECKED, AM_IDLE, AM_DO_SEND_DONE);
    TAKE(b, AM_SETTLED, AM_IDLE);
    TAKE(b, AM_PLAN, AM_RUNNING, AM_DO_END_SEARCHES, AM_DO_START_ROUND);
    TAKE(b, AM_NOT_STARTED, AM_CHECKING, AM_DO_CHECK_HEALTH);
    TAKE(b, AM_CHECKED, AM_IDLE, AM_DO_SEND_DONE);
    TAKE_WITH(b, AM_LEAVING, EVENT(.kind = AM_FINISH, .code = 7), AM_DO_REQUEUE, AM_DO_LEAVE);
    TAKE(b, AM_REQUEUED, AM_LEAVING, AM_DO_EXIT);
    assert_int_equal(b->m.code, 7);
    free(b);
}

static void node_exits_after_workers_requeue_and_daemon(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 0);
    leading(b);
    TAKE(b, AM_PLAN, AM_RUNNING, AM_DO_END_SEARCHES, AM_DO_START_ROUND);
    TAKE_WITH(b, AM_ENDING, EVENT(.kind = AM_FINISH, .code = 3), AM_DO_REQUEUE, AM_DO_STOP_WORKERS);
    TAKE(b, AM_REQUEUED, AM_ENDING);
    TAKE_WITH(b, AM_ENDING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM)); /* the job has finished */
    TAKE(b, AM_LOST, AM_ENDING, AM_DO_DROP_LINK); /* keeps the code of FINISH */
    TAKE(b, AM_WORKERS_GONE, AM_LEAVING, AM_DO_LEAVE);
    wait_for(b, AM_DAEMON_SLOW, 30000);
    TAKE(b, AM_DAEMON_SLOW, AM_LEAVING, AM_DO_SIGNAL_DAEMON);
    TAKE(b, AM_DAEMON_ENDED, AM_LEAVING, AM_DO_EXIT);
    TAKE(b, AM_DAEMON_ENDED, AM_LEAVING);
    assert_int_equal(b->m.code, 3);
    free(b);
}

static void seeking_ends_with_1_at_its_limit(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    b->cfg.asks_peers = false;
    TAKE(b, AM_SEEK, AM_SEEKING, AM_DO_LOCATE);
    wait_for(b, AM_SEEK_LIMIT, 60000);
    TAKE(b, AM_SEEK_LIMIT, AM_LEAVING, AM_DO_REPORT, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 1);
    free(b);
}

static void loss_of_the_daemon_ends_a_job_that_cannot_go_on(void **state)
{
    (void)state;
    static const struct rdzv_cfg strict = {.min_nodes = 3, .max_nodes = 3};
    struct bed *b = bed_new(&three, 1);
    b->cfg.rdzv = &strict;
    running(b);
    TAKE(b, AM_LOST, AM_ENDING, AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_STOP_WORKERS);
    TAKE(b, AM_WORKERS_GONE, AM_LEAVING, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 1);
    free(b);
}

static void first_member_takes_over_after_its_turn(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    failing_over(b);
    wait_for(b, AM_TAKEOVER_DUE, 1000);
    TAKE(b, AM_TAKEOVER_DUE, AM_CONTENDING, AM_DO_STOP_DAEMON, AM_DO_START_DAEMON);
    assert_true(b->m.epoch > 0);
    TAKE(b, AM_FOUND, AM_CONTENDING, AM_DO_ASK);
    TAKE(b, AM_OTHER_REFUSES, AM_CONTENDING, AM_DO_DROP_OTHER);
    wait_for(b, AM_RETRY_DUE, 300);
    TAKE(b, AM_RETRY_DUE, AM_CONTENDING, AM_DO_ASK_MEMBERS);
    TAKE(b, AM_FOUND, AM_CONTENDING, AM_DO_ASK);
    TAKE(b, AM_OTHER_TAKES, AM_JOINED, AM_DO_DROP_LINK, AM_DO_STOP_DAEMON, AM_DO_MOVE,
         AM_DO_END_SEARCHES);
    assert_int_equal(b->m.pending, 0);
    assert_int_equal(agent_machine_timer(&b->m), RDZV_NEVER);
    free(b);
}

static void successor_asks_again_whether_another_daemon_goes_on(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    failing_over(b);
    wait_for(b, AM_TAKEOVER_DUE, 1000);
    TAKE(b, AM_TAKEOVER_DUE, AM_CONTENDING, AM_DO_STOP_DAEMON, AM_DO_START_DAEMON);
    TAKE(b, AM_PROBE_REQUEST, AM_CONTENDING); /* the members are being probed already */
    TAKE(b, AM_FOUND, AM_CONTENDING, AM_DO_ASK);
    TAKE(b, AM_OTHER_GONE, AM_CONTENDING, AM_DO_DROP_OTHER);
    wait_for(b, AM_RETRY_DUE, 300);
    TAKE(b, AM_RETRY_DUE, AM_CONTENDING, AM_DO_ASK_MEMBERS);
    free(b);
}

static void daemon_that_does_not_start_leaves_the_node_looking(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    failing_over(b);
    wait_for(b, AM_TAKEOVER_DUE, 1000);
    TAKE(b, AM_TAKEOVER_DUE, AM_CONTENDING, AM_DO_STOP_DAEMON, AM_DO_START_DAEMON);
    TAKE(b, AM_CANNOT_LEAD, AM_FAILING_OVER, AM_DO_REPORT);
    TAKE(b, AM_FOUND, AM_TRYING, AM_DO_JOIN);
    free(b);
}

static void found_daemon_may_refuse_and_is_asked_again(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 2);
    failing_over(b);
    TAKE(b, AM_FOUND, AM_TRYING, AM_DO_JOIN);
    TAKE(b, AM_REFUSE, AM_FAILING_OVER, AM_DO_REPORT, AM_DO_DROP_LINK);
    wait_for(b, AM_RETRY_DUE, 300);
    TAKE(b, AM_RETRY_DUE, AM_FAILING_OVER, AM_DO_ASK_MEMBERS);
    TAKE(b, AM_FOUND, AM_TRYING, AM_DO_JOIN);
    TAKE(b, AM_PLAN, AM_RUNNING, AM_DO_END_SEARCHES, AM_DO_START_ROUND);
    assert_int_equal(agent_machine_timer(&b->m), RDZV_NEVER);
    free(b);
}

static void failing_over_ends_with_1_at_its_limit(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 9); /* not among the successors */
    failing_over(b);
    wait_for(b, AM_FAIL_OVER_LIMIT, 30000 + 5000 + 1000 + 3 * 3000);
    TAKE(b, AM_FAIL_OVER_LIMIT, AM_LEAVING, AM_DO_REPORT, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 1);
    free(b);
}

static void limit_waits_for_a_daemon_that_may_still_refuse(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 9);
    failing_over(b);
    TAKE(b, AM_FOUND, AM_TRYING, AM_DO_JOIN);
    wait_for(b, AM_FAIL_OVER_LIMIT, 45000);
    TAKE(b, AM_FAIL_OVER_LIMIT, AM_TRYING);
    wait_for(b, AM_FAIL_OVER_LIMIT, 1000);
    free(b);
}

static void second_loss_gives_the_turn_to_other_nodes_first(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 0); /* the node of the lost daemon */
    failing_over(b);
    wait_for(b, AM_TAKEOVER_DUE, 0);
    TAKE(b, AM_TAKEOVER_DUE, AM_CONTENDING, AM_DO_STOP_DAEMON, AM_DO_START_DAEMON);
    TAKE(b, AM_LOST, AM_FAILING_OVER, AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_END_SEARCHES,
         AM_DO_ASK_MEMBERS);
    wait_for(b, AM_TAKEOVER_DUE, 1000);
    free(b);
}

static void job_that_is_stopped_does_not_fail_over(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    running(b);
    TAKE_WITH(b, AM_RUNNING, EVENT(.kind = AM_SIGNAL, .sig = SIGINT), AM_DO_SEND_STOP);
    TAKE(b, AM_LOST, AM_ENDING, AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_STOP_WORKERS);
    TAKE(b, AM_WORKERS_GONE, AM_LEAVING, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 128 + SIGINT);
    free(b);
}

static void unanswered_request_to_stop_ends_this_node_alone(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    running(b);
    TAKE_WITH(b, AM_RUNNING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM, .code = 124),
              AM_DO_SEND_STOP);
    wait_for(b, AM_UNANSWERED, 2000);
    TAKE(b, AM_UNANSWERED, AM_ENDING, AM_DO_STOP_WORKERS);
    TAKE_WITH(b, AM_ENDING, EVENT(.kind = AM_SIGNAL, .sig = SIGINT), AM_DO_KILL_WORKERS);
    TAKE(b, AM_WORKERS_GONE, AM_LEAVING, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 124);
    free(b);
}

static void stop_answers_the_request(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    running(b);
    TAKE_WITH(b, AM_RUNNING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM), AM_DO_SEND_STOP);
    TAKE_WITH(b, AM_RUNNING, EVENT(.kind = AM_STOP, .code = SIGTERM), AM_DO_STOP_WORKERS);
    assert_int_equal(agent_machine_timer(&b->m), RDZV_NEVER);
    TAKE_WITH(b, AM_RUNNING, EVENT(.kind = AM_STOP, .code = 0)); /* STOP of another round */
    free(b);
}

static void request_to_stop_is_sent_once_a_daemon_is_found(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    TAKE(b, AM_SEEK, AM_SEEKING, AM_DO_LOCATE);
    TAKE_WITH(b, AM_SEEKING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM), AM_DO_SEND_STOP);
    TAKE(b, AM_FOUND, AM_JOINED, AM_DO_JOIN, AM_DO_SEND_STOP);
    free(b);
}

static void second_signal_leaves_at_once_where_nothing_runs(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    TAKE(b, AM_SEEK, AM_SEEKING, AM_DO_LOCATE);
    TAKE_WITH(b, AM_SEEKING, EVENT(.kind = AM_SIGNAL, .sig = SIGTERM), AM_DO_SEND_STOP);
    TAKE_WITH(b, AM_LEAVING, EVENT(.kind = AM_SIGNAL, .sig = SIGINT), AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 128 + SIGINT);
    free(b);
}

static void guardian_loss_stops_this_node_only(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    running(b);
    TAKE_WITH(b, AM_ENDING, EVENT(.kind = AM_GUARDIAN_LOST, .sig = SIGTERM), AM_DO_END_SEARCHES,
              AM_DO_DROP_LINK, AM_DO_SIGNAL_DAEMON, AM_DO_STOP_WORKERS);
    TAKE_WITH(b, AM_ENDING, EVENT(.kind = AM_GUARDIAN_LOST, .sig = SIGTERM));
    free(b);
}

static void guardian_loss_ends_the_daemon_that_a_leaving_node_waits_for(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 0);
    leading(b);
    TAKE_WITH(b, AM_LEAVING, EVENT(.kind = AM_FINISH, .code = 3), AM_DO_REQUEUE, AM_DO_LEAVE);
    TAKE_WITH(b, AM_LEAVING, EVENT(.kind = AM_GUARDIAN_LOST, .sig = SIGTERM), AM_DO_SIGNAL_DAEMON);
    TAKE(b, AM_REQUEUED, AM_LEAVING);
    TAKE(b, AM_DAEMON_ENDED, AM_LEAVING, AM_DO_EXIT);
    assert_int_equal(b->m.code, 3);
    free(b);
}

static void unreadable_message_is_answered_with_bye(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    joined(b);
    TAKE(b, AM_UNREADABLE, AM_BYE_SENT, AM_DO_SEND_BYE);
    TAKE(b, AM_PLAN, AM_BYE_SENT);
    TAKE(b, AM_LOST, AM_LEAVING, AM_DO_DROP_LINK, AM_DO_LEAVE, AM_DO_EXIT);
    assert_int_equal(b->m.code, 2);
    free(b);
}

static void leader_asks_its_peers_before_a_round_with_fewer_nodes(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 0);
    leading(b);
    wait_for(b, AM_PEERS_DUE, 1000);
    TAKE(b, AM_PEERS_DUE, AM_LEADING, AM_DO_ASK_PEERS);
    TAKE(b, AM_PEERS_PROBED, AM_LEADING);
    TAKE(b, AM_PROBE_REQUEST, AM_LEADING, AM_DO_ASK_PEERS);
    TAKE(b, AM_FOUND, AM_LEADING, AM_DO_ASK);
    TAKE_WITH(b, AM_LEADING, EVENT(.kind = AM_PEERS_PROBED, .open = true));
    TAKE_WITH(b, AM_LEADING, EVENT(.kind = AM_OTHER_REFUSES, .epoch = 5), AM_DO_DROP_OTHER,
              AM_DO_REPORT);
    TAKE(b, AM_PEERS_PROBED, AM_LEADING); /* no PROBE_RESULT: a daemon refused the node */
    wait_for(b, AM_PEERS_DUE, 1000);
    TAKE(b, AM_PEERS_DUE, AM_LEADING, AM_DO_ASK_PEERS);
    TAKE(b, AM_PEERS_PROBED, AM_LEADING, AM_DO_SEND_PROBE_RESULT);
    TAKE(b, AM_ROUND_STARTED, AM_JOINED, AM_DO_END_SEARCHES);
    assert_int_equal(agent_machine_timer(&b->m), RDZV_NEVER);
    free(b);
}

static void leader_goes_over_to_a_later_daemon_only(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 0);
    leading(b);
    TAKE(b, AM_PROBE_REQUEST, AM_LEADING, AM_DO_ASK_PEERS);
    TAKE(b, AM_FOUND, AM_LEADING, AM_DO_ASK);
    TAKE_WITH(b, AM_LEADING, EVENT(.kind = AM_OTHER_TAKES, .epoch = 0), AM_DO_DROP_OTHER);
    TAKE(b, AM_FOUND, AM_LEADING, AM_DO_ASK);
    TAKE_WITH(b, AM_JOINED, EVENT(.kind = AM_OTHER_TAKES, .epoch = 5), AM_DO_MOVE_AFTER,
              AM_DO_END_SEARCHES);
    TAKE(b, AM_DAEMON_ENDED, AM_JOINED);
    free(b);
}

static void leader_that_is_refused_for_too_long_leaves(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 0);
    leading(b);
    TAKE(b, AM_PROBE_REQUEST, AM_LEADING, AM_DO_ASK_PEERS);
    TAKE_WITH(b, AM_LEADING, EVENT(.kind = AM_OTHER_REFUSES, .epoch = 5), AM_DO_DROP_OTHER,
              AM_DO_REPORT);
    b->now += 60001;
    TAKE(b, AM_PEERS_PROBED, AM_LEAVING, AM_DO_REPORT, AM_DO_LEAVE);
    assert_int_equal(b->m.code, 1);
    free(b);
}

static void redirected_node_seeks_there(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 1);
    joined(b);
    TAKE(b, AM_REDIRECT, AM_SEEKING, AM_DO_END_SEARCHES, AM_DO_DROP_LINK, AM_DO_LOCATE_THERE);
    TAKE(b, AM_FOUND, AM_JOINED, AM_DO_JOIN);
    free(b);
}

static void taken_port_turns_the_leader_into_a_follower(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, 0);
    b->cfg.asks_peers = false;
    leading(b);
    assert_int_equal(b->m.index, 0);
    TAKE(b, AM_PORT_TAKEN, AM_SEEKING, AM_DO_LOCATE);
    assert_int_equal(b->m.index, -1);
    assert_int_equal(b->m.pending, 0);
    b->now += 20000;
    leading(b); /* the port is free again */
    TAKE(b, AM_PORT_TAKEN, AM_SEEKING, AM_DO_LOCATE);
    wait_for(b, AM_SEEK_LIMIT, 40000); /* all attempts together */
    free(b);
}

static void etcd_finds_the_next_daemon_before_the_first_round(void **state)
{
    (void)state;
    struct bed *b = bed_new(&none, -1);
    b->cfg.etcd = true;
    joined(b);
    TAKE(b, AM_LOST, AM_SEEKING, AM_DO_REPORT, AM_DO_DROP_LINK, AM_DO_LOCATE);
    leading(b);
    assert_int_equal(b->m.index, 0);
    TAKE(b, AM_PROBE_REQUEST, AM_LEADING, AM_DO_CHECK_CLAIM);
    TAKE(b, AM_ELSEWHERE, AM_SEEKING, AM_DO_END_SEARCHES, AM_DO_GIVE_WAY, AM_DO_LOCATE_THERE);
    assert_int_equal(b->m.index, -1); /* the other daemon assigns a new index */
    free(b);
}

static void leader_that_gives_way_under_workers_stops_them_first(void **state)
{
    (void)state;
    struct bed *b = bed_new(&three, 1);
    b->cfg.etcd = true;
    running(b);
    TAKE(b, AM_ELSEWHERE, AM_STRANDED, AM_DO_END_SEARCHES, AM_DO_GIVE_WAY, AM_DO_STOP_WORKERS);
    TAKE(b, AM_WORKERS_GONE, AM_FAILING_OVER, AM_DO_END_SEARCHES, AM_DO_ASK_MEMBERS);
    TAKE(b, AM_ELSEWHERE, AM_FAILING_OVER, AM_DO_LOCATE_THERE);
    free(b);
}

/* Invariants that hold for any events in any order. */
static void random_events_keep_the_promises(void **state)
{
    (void)state;
    static const int for_workers[] = {AM_DO_STOP_WORKERS, AM_DO_KILL_WORKERS, -1};
    for (unsigned seed = 1; seed <= 20000; seed++) {
        struct bed *b = bed_new(seed % 2 ? &three : &none, (int)(seed % 4));
        uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
        bool gone = false;
        b->cfg.etcd = seed % 3 == 0;
        for (int i = 0; i < 60; i++) {
            struct am_action a;
            random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const struct am_event e = {.kind = (enum am_event_kind)((random >> 33) % AM_EVENTS),
                                       .sig = SIGTERM,
                                       .epoch = (int64_t)((random >> 50) % 3)};
            const bool had_workers = has_workers(b->m.state);
            b->now += (random >> 40) % 2000;
            agent_machine_step(&b->m, &e, b->now);
            assert_int_equal((b->m.pending & AM_PENDING_WORKERS) != 0, has_workers(b->m.state));
            while (agent_machine_next(&b->m, &a)) {
                assert_false(gone && a.kind == AM_DO_EXIT);
                assert_false(a.kind == AM_DO_START_ROUND && had_workers);
                assert_false(a.kind == AM_DO_EXIT && b->m.pending != 0);
                assert_false(is_among(for_workers, a.kind) && !has_workers(b->m.state));
                gone |= a.kind == AM_DO_EXIT;
            }
            assert_int_equal(b->m.gone, gone);
            assert_false(b->m.overflow);
        }
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_is_reached_and_ends_in_leaving),
        cmocka_unit_test(nothing_leads_out_of_leaving),
        cmocka_unit_test(no_node_leaves_its_workers_behind),
        cmocka_unit_test(done_follows_drained_signals_and_the_health_check),
        cmocka_unit_test(every_linked_state_takes_the_end_of_the_job_and_of_the_link),
        cmocka_unit_test(rare_events_lead_to_their_state_by_their_actions),
        cmocka_unit_test(rare_events_change_what_the_node_waits_for),
        cmocka_unit_test(round_ends_with_done_and_the_job_with_its_code),
        cmocka_unit_test(node_exits_after_workers_requeue_and_daemon),
        cmocka_unit_test(seeking_ends_with_1_at_its_limit),
        cmocka_unit_test(loss_of_the_daemon_ends_a_job_that_cannot_go_on),
        cmocka_unit_test(first_member_takes_over_after_its_turn),
        cmocka_unit_test(successor_asks_again_whether_another_daemon_goes_on),
        cmocka_unit_test(daemon_that_does_not_start_leaves_the_node_looking),
        cmocka_unit_test(found_daemon_may_refuse_and_is_asked_again),
        cmocka_unit_test(failing_over_ends_with_1_at_its_limit),
        cmocka_unit_test(limit_waits_for_a_daemon_that_may_still_refuse),
        cmocka_unit_test(second_loss_gives_the_turn_to_other_nodes_first),
        cmocka_unit_test(job_that_is_stopped_does_not_fail_over),
        cmocka_unit_test(unanswered_request_to_stop_ends_this_node_alone),
        cmocka_unit_test(stop_answers_the_request),
        cmocka_unit_test(request_to_stop_is_sent_once_a_daemon_is_found),
        cmocka_unit_test(second_signal_leaves_at_once_where_nothing_runs),
        cmocka_unit_test(guardian_loss_stops_this_node_only),
        cmocka_unit_test(guardian_loss_ends_the_daemon_that_a_leaving_node_waits_for),
        cmocka_unit_test(unreadable_message_is_answered_with_bye),
        cmocka_unit_test(leader_asks_its_peers_before_a_round_with_fewer_nodes),
        cmocka_unit_test(leader_goes_over_to_a_later_daemon_only),
        cmocka_unit_test(leader_that_is_refused_for_too_long_leaves),
        cmocka_unit_test(redirected_node_seeks_there),
        cmocka_unit_test(taken_port_turns_the_leader_into_a_follower),
        cmocka_unit_test(etcd_finds_the_next_daemon_before_the_first_round),
        cmocka_unit_test(leader_that_gives_way_under_workers_stops_them_first),
        cmocka_unit_test(random_events_keep_the_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
