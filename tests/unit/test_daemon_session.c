/* daemon: the ids and addresses of sessions, and the messages that the daemon accepts from an
 * agent. The links are socketpairs. */
#include "daemon/dispatch.h"
#include "daemon/session.h"

#include "base/io.h"

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { CAPACITY = 3 };

struct world {
    struct event_base *base;
    struct session_set set;
    int gone;
    int peers[8], npeers;
};

static void on_gone(void *arg, struct session *s)
{
    struct world *w = arg;
    (void)s;
    w->gone++;
}

static void begin(struct world *w)
{
    *w = (struct world){.base = event_base_new()};
    const struct session_cfg cfg = {
        .capacity = CAPACITY, .heartbeat_ns = 60 * DD_NS_PER_S, .ops = {.gone = on_gone, .arg = w}};
    assert_int_equal(session_set_init(&w->set, &cfg), 0);
}

static void end(struct world *w)
{
    session_set_done(&w->set);
    assert_int_equal(w->gone, w->npeers);
    for (int i = 0; i < w->npeers; i++)
        close(w->peers[i]);
    event_base_free(w->base);
}

static struct session *connect_agent(struct world *w, bool is_leader)
{
    const struct link_cb none = {0};
    struct link *link;
    struct dd_err err;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    w->peers[w->npeers++] = fds[1];
    assert_int_equal(link_new_trusted(&link, w->base, fds[0], &none, &err), 0);
    return session_new(&w->set, link, is_leader);
}

static void ids_are_dense_and_given_again(void **state)
{
    (void)state;
    struct world w;
    struct session *s[CAPACITY + 1];
    begin(&w);
    for (int i = 0; i <= CAPACITY; i++)
        s[i] = connect_agent(&w, false);
    for (int i = 0; i < CAPACITY; i++)
        assert_int_equal(session_take_id(s[i]), i);
    assert_int_equal(session_take_id(s[CAPACITY]), -1);
    assert_ptr_equal(session_of_id(&w.set, 1), s[1]);
    session_free(s[1]);
    assert_null(session_of_id(&w.set, 1));
    assert_int_equal(session_take_id(s[CAPACITY]), 1);
    assert_int_equal(w.set.n, CAPACITY);
    end(&w);
}

static void ids_out_of_range_are_no_session(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    assert_null(session_of_id(&w.set, -1));
    assert_null(session_of_id(&w.set, CAPACITY));
    end(&w);
}

static void an_address_counts_once_its_agent_has_joined(void **state)
{
    (void)state;
    struct world w;
    struct net_addr at, other;
    char text[] = "10.0.0.7", junk[] = "no address";
    char *v[] = {junk, text};
    const struct dd_strv addrs = {.v = v, .n = 2};
    begin(&w);
    struct session *s = connect_agent(&w, false);
    assert_int_equal(net_addr_parse(&at, text, 4711), 0);
    assert_int_equal(net_addr_parse(&other, "10.0.0.8", 0), 0);
    assert_int_equal(session_set_addrs(s, &addrs), 0);
    assert_null(session_of_addr(&w.set, &at));
    (void)session_take_id(s);
    assert_ptr_equal(session_of_addr(&w.set, &at), s);
    assert_null(session_of_addr(&w.set, &other));
    end(&w);
}

static void an_address_is_forgotten_with_the_last_session_that_has_it(void **state)
{
    (void)state;
    struct world w;
    struct net_addr at;
    char text[] = "10.0.0.7";
    char *v[] = {text};
    const struct dd_strv addrs = {.v = v, .n = 1};
    struct session *s[2];
    begin(&w);
    assert_int_equal(net_addr_parse(&at, text, 0), 0);
    for (int i = 0; i < 2; i++) {
        s[i] = connect_agent(&w, false);
        assert_int_equal(session_set_addrs(s[i], &addrs), 0);
        (void)session_take_id(s[i]);
    }
    session_free(s[1]);
    assert_ptr_equal(session_of_addr(&w.set, &at), s[0]);
    session_free(s[0]);
    assert_null(session_of_addr(&w.set, &at));
    end(&w);
}

static void the_leader_is_found_and_an_admission_node_leads_to_its_session(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    assert_null(w.set.leader);
    struct session *leader = connect_agent(&w, true);
    struct session *s = connect_agent(&w, false);
    assert_ptr_equal(w.set.leader, leader);
    assert_ptr_equal(session_of_admission(&s->admission), s);
    session_free(leader);
    assert_null(w.set.leader);
    end(&w);
}

static void malformed_ports_are_ignored(void **state)
{
    (void)state;
    struct world w;
    begin(&w);
    struct session *s = connect_agent(&w, false);
    session_set_ports(s, "/4711,4712");
    assert_string_equal(s->ports, "/4711,4712");
    session_set_ports(s, "/x");
    assert_null(s->ports);
    end(&w);
}

/* The protocol's messages from agents to the daemon; the agent sends IDENTITY to ddctl only. */
static void messages_of_agents_have_a_handler_and_the_daemons_own_have_none(void **state)
{
    (void)state;
    static const enum msg_type from_agents[] = {
        MSG_JOIN,        MSG_PROBE_RESULT, MSG_PHASES,
        MSG_STARTED,     MSG_EXIT,         MSG_SUCCESS_CRITERIA_MET,
        MSG_DONE,        MSG_STOP_REQUEST, MSG_SIGNAL_REQUEST,
        MSG_WHOIS_REPLY, MSG_CTL_REQUEST,  MSG_STACKS_WANTED,
        MSG_STACKS,      MSG_WARNINGS,     MSG_PROGRESS,
        MSG_STEPS,       MSG_USAGE,        MSG_IDLE,
        MSG_NODE_MARKS,  MSG_LOAD,         MSG_SIGNALLED,
        MSG_LEFT};
    const size_t n = sizeof(from_agents) / sizeof(from_agents[0]);
    size_t handled = 0;
    for (int t = 0; t < MSG_TYPE_MAX; t++)
        handled += dispatch_handles((enum msg_type)t);
    for (size_t i = 0; i < n; i++)
        assert_true(dispatch_handles(from_agents[i]));
    assert_int_equal(handled, n);
    assert_false(dispatch_handles(MSG_TYPE_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_dense_and_given_again),
        cmocka_unit_test(ids_out_of_range_are_no_session),
        cmocka_unit_test(an_address_counts_once_its_agent_has_joined),
        cmocka_unit_test(an_address_is_forgotten_with_the_last_session_that_has_it),
        cmocka_unit_test(the_leader_is_found_and_an_admission_node_leads_to_its_session),
        cmocka_unit_test(malformed_ports_are_ignored),
        cmocka_unit_test(messages_of_agents_have_a_handler_and_the_daemons_own_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
