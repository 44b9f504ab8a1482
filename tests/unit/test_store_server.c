/* store/store_server: the start, admission and end of connections. test_store_c10d.c covers
 * requests, tests/e2e/test_store_wire.py many connections on real sockets. */
#include "store/store_server.h"

#include "store/carried.h"
#include "store/relay_wire.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PEERS = 4, TURNS = 20 };

struct peer {
    int fd; /* client's end */
    int server_fd;
    struct store_conn *conn;
    int gone; /* number of calls of the end callback */
};

struct rig {
    struct event_base *base;
    struct store_server *s;
    struct store_limits limits;
    struct peer peer[PEERS];
};

#define HELLO "\x00\xce\xf7\x85\x3c"
#define SET_K "\x01\1\0\0\0\0\0\0\0k\1\0\0\0\0\0\0\0v"
#define GET_K "\x03\1\0\0\0\0\0\0\0k"
#define WAIT_K "\x06\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k"
#define V "\1\0\0\0\0\0\0\0v"
#define LIT(s) s, sizeof(s) - 1

static int setup(void **state)
{
    static struct rig rig;
    struct dd_err err;
    rig = (struct rig){.base = event_base_new()};
    store_limits_default(&rig.limits);
    rig.limits.max_conns = 3;
    assert_non_null(rig.base);
    assert_int_equal(store_server_new(&rig.s, rig.base, NULL, &rig.limits, STORE_OLD_REFUSE, &err),
                     0);
    for (int i = 0; i < PEERS; i++)
        rig.peer[i].fd = -1;
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    store_server_free(r->s);
    for (int i = 0; i < PEERS; i++) {
        assert_int_equal(r->peer[i].gone, r->peer[i].conn != NULL);
        if (r->peer[i].fd >= 0)
            close(r->peer[i].fd);
    }
    event_base_free(r->base);
    return 0;
}

static void on_gone(void *arg)
{
    struct peer *p = arg;
    p->gone++;
}

static int adopt(struct rig *r, int i, bool admitted)
{
    int pair[2];
    struct peer *p = &r->peer[i];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    p->fd = pair[0];
    p->server_fd = pair[1];
    return store_server_adopt(r->s, pair[1], admitted, &p->conn, on_gone, p);
}

static void loop(struct rig *r)
{
    for (int i = 0; i < TURNS; i++)
        assert_true(event_base_loop(r->base, EVLOOP_NONBLOCK) >= 0);
}

static void say(struct rig *r, int i, const char *bytes, size_t n)
{
    assert_int_equal(send(r->peer[i].fd, bytes, n, MSG_NOSIGNAL), (ssize_t)n);
    loop(r);
}

static void hears(struct rig *r, int i, const char *want, size_t n)
{
    char got[256];
    assert_int_equal(recv(r->peer[i].fd, got, sizeof(got), 0), (ssize_t)n);
    assert_memory_equal(got, want, n);
}

static void hears_nothing(struct rig *r, int i)
{
    char got;
    assert_int_equal(recv(r->peer[i].fd, &got, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
}

static void sees_the_end(struct rig *r, int i)
{
    char got;
    assert_true(recv(r->peer[i].fd, &got, 1, 0) <= 0 && errno != EAGAIN);
}

static uint64_t keys(const struct rig *r)
{
    struct store_stats st;
    store_server_stats(r->s, &st);
    return st.keys;
}

static void admitted_connection_is_served(void **state)
{
    struct rig *r = *state;
    struct store_stats st;
    assert_int_equal(adopt(r, 0, true), 0);
    say(r, 0, LIT(HELLO SET_K GET_K));
    hears(r, 0, LIT(V));
    store_server_stats(r->s, &st);
    assert_int_equal(st.conns, 1);
    assert_int_equal(st.conns_total, 1);
    assert_int_equal(st.ops, 2);
    assert_int_equal(st.keys, 1);
    assert_in_range(st.bytes, 2, 1000);
    assert_int_equal(st.refused, 0);
}

static void nothing_is_read_before_admission(void **state)
{
    struct rig *r = *state;
    char left;
    assert_int_equal(adopt(r, 0, false), 0);
    say(r, 0, LIT(HELLO SET_K GET_K));
    hears_nothing(r, 0);
    assert_int_equal(keys(r), 0);
    assert_int_equal(recv(r->peer[0].server_fd, &left, 1, MSG_PEEK), 1);
    store_conn_admit(r->peer[0].conn);
    store_conn_admit(r->peer[0].conn); /* no effect */
    loop(r);
    hears(r, 0, LIT(V));
}

static void peer_that_leaves_before_admission_is_still_heard(void **state)
{
    struct rig *r = *state;
    assert_int_equal(adopt(r, 0, false), 0);
    say(r, 0, LIT(HELLO SET_K));
    close(r->peer[0].fd);
    r->peer[0].fd = -1;
    loop(r);
    assert_int_equal(r->peer[0].gone, 0);
    store_conn_admit(r->peer[0].conn);
    loop(r);
    assert_int_equal(keys(r), 1);
    assert_int_equal(r->peer[0].gone, 1);
}

static void refused_connection_has_done_nothing(void **state)
{
    struct rig *r = *state;
    assert_int_equal(adopt(r, 0, false), 0);
    say(r, 0, LIT(HELLO SET_K));
    store_conn_close(r->peer[0].conn);
    store_conn_close(r->peer[0].conn);
    assert_int_equal(r->peer[0].gone, 0); /* called from the loop only */
    loop(r);
    assert_int_equal(r->peer[0].gone, 1);
    assert_int_equal(keys(r), 0);
    sees_the_end(r, 0);
}

static void too_many_connections_are_closed(void **state)
{
    struct rig *r = *state;
    struct store_stats st;
    for (int i = 0; i < 3; i++)
        assert_int_equal(adopt(r, i, i != 1), 0);
    assert_int_equal(adopt(r, 3, true), -EMFILE);
    assert_null(r->peer[3].conn);
    assert_int_equal(fcntl(r->peer[3].server_fd, F_GETFD), -1); /* closed on failure, too */
    sees_the_end(r, 3);
    store_server_stats(r->s, &st);
    assert_int_equal(st.refused, 1);
    store_conn_close(r->peer[0].conn);
    close(r->peer[3].fd);
    assert_int_equal(adopt(r, 3, true), 0); /* within the limit again */
    loop(r);
    say(r, 3, LIT(HELLO SET_K GET_K));
    hears(r, 3, LIT(V));
}

static void faulty_peer_is_closed_and_counted(void **state)
{
    struct rig *r = *state;
    struct store_stats st;
    assert_int_equal(adopt(r, 0, true), 0);
    say(r, 0, LIT("GET / HTTP/1.1\r\n\r\n"));
    assert_int_equal(r->peer[0].gone, 1);
    sees_the_end(r, 0);
    store_server_stats(r->s, &st);
    assert_int_equal(st.refused, 1);
    assert_int_equal(st.conns, 0);
}

static void reset_drops_keys_and_connections(void **state)
{
    struct rig *r = *state;
    struct store_stats st;
    assert_int_equal(adopt(r, 0, true), 0);
    assert_int_equal(adopt(r, 1, true), 0);
    assert_int_equal(adopt(r, 2, false), 0);
    say(r, 0, LIT(HELLO SET_K));
    say(r, 1, LIT(HELLO "\x06\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0w"));
    store_server_reset(r->s);
    loop(r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->peer[i].gone, 1);
        sees_the_end(r, i); /* the waiter gets no reply */
    }
    store_server_stats(r->s, &st);
    assert_int_equal(st.keys + st.waiters + st.conns + st.bytes, 0);
    assert_int_equal(adopt(r, 3, true), 0); /* the next round */
    say(r, 3, LIT(HELLO GET_K));
    hears(r, 3, LIT("\0\0\0\0\0\0\0\0"));
}

static void waiter_is_told_and_served_on(void **state)
{
    struct rig *r = *state;
    assert_int_equal(adopt(r, 0, true), 0);
    assert_int_equal(adopt(r, 1, true), 0);
    say(r, 0, LIT(HELLO WAIT_K GET_K));
    hears_nothing(r, 0);
    say(r, 1, LIT(HELLO SET_K));
    hears(r, 0, LIT("\0" V));
}

/* ---- a node with a relay ---- */

struct node {
    struct store_carrier *carrier;
    int closed; /* CLOSE messages to it */
};

static void node_hears(void *arg, const void *p, size_t n)
{
    struct node *node = arg;
    struct relay_msg m;
    assert_int_equal(relay_wire_decode(&m, p, n), 0);
    node->closed += m.type == RELAY_CLOSE;
}

static int node_sends(struct node *node, struct relay_msg m)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(1 << 20);
    struct dd_err err;
    assert_int_equal(relay_wire_encode(&b, &m), 0);
    return store_carrier_take(node->carrier, 0, b.data, b.len, &err);
}

static void node_joins(struct rig *r, struct node *node)
{
    const struct store_carrier_cfg cfg = {.send = node_hears, .arg = node};
    *node = (struct node){0};
    assert_int_equal(store_server_carrier(r->s, &node->carrier, &cfg), 0);
    assert_int_equal(node_sends(node, (struct relay_msg){.type = RELAY_BEGIN}), 0);
}

/* A client that carries a request for the node. */
static void node_asks(struct node *node, uint32_t conn, const char *request, size_t n)
{
    const struct store_bytes b = {(const unsigned char *)request, n};
    assert_int_equal(
        node_sends(node, (struct relay_msg){.type = RELAY_OPEN, .conn = conn, .n = C10D_TABLE_C}),
        0);
    assert_int_equal(
        node_sends(node, (struct relay_msg){.type = RELAY_DATA, .conn = conn, .data = b}), 0);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    *(bool *)arg = true;
}

static void server_is_idle(struct rig *r)
{
    const struct timeval soon = {.tv_usec = 1000};
    bool passed = false;
    loop(r);
    assert_int_equal(event_base_once(r->base, -1, EV_TIMEOUT, on_time, &passed, &soon), 0);
    assert_true(event_base_loop(r->base, EVLOOP_ONCE) >= 0);
    assert_true(passed);
}

static void stalled_client_that_leaves_is_not_polled(void **state)
{
    struct rig *r = *state;
    struct node node;
    static char large[17 + 1 + 100000] = "\x01\1\0\0\0\0\0\0\0k\xa0\x86\1\0\0\0\0\0v";
    const struct store_bytes k = {(const unsigned char *)"k", 1};
    assert_int_equal(adopt(r, 0, true), 0);
    assert_int_equal(adopt(r, 1, true), 0);
    say(r, 0, LIT(HELLO SET_K));
    node_joins(r, &node);
    assert_int_equal(node_sends(&node, (struct relay_msg){.type = RELAY_ASK, .key = k}), 0);
    say(r, 0, large, sizeof(large)); /* waits for the node to drop its copy */
    say(r, 0, LIT("\x01\1\0\0\0\0\0\0\0l\1\0\0\0\0\0\0\0v"));
    shutdown(r->peer[0].fd, SHUT_WR);
    server_is_idle(r);
    assert_int_equal(r->peer[0].gone, 0);
    assert_int_equal(node_sends(&node, (struct relay_msg){.type = RELAY_DROPPED}), 0);
    loop(r);
    assert_int_equal(r->peer[0].gone, 1);
    assert_int_equal(keys(r), 2); /* its requests were executed */
    store_carrier_free(node.carrier);
}

static void waits_end_for_clients_of_nodes_too(void **state)
{
    struct rig *r = *state;
    struct node node;
    node_joins(r, &node);
    node_asks(&node, 1, LIT("\x06\1\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0ddrun/k"));
    node_asks(&node, 2, LIT("\x06\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0other"));
    assert_int_equal(node.closed, 0);
    store_server_end_waits(r->s, "ddrun/");
    assert_int_equal(node.closed, 1);
    node_asks(&node, 3, LIT("\x06\1\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0ddrun/k"));
    assert_int_equal(node.closed, 2);
    store_carrier_free(node.carrier);
}

static void backlog_of_a_node_is_executed_in_turns(void **state)
{
    enum { N = 3000 };
    static char many[N * 18 + 1];
    struct rig *r = *state;
    struct node node;
    struct store_stats st;
    const struct store_bytes set = {(const unsigned char *)SET_K, sizeof(SET_K) - 1};
    node_joins(r, &node);
    for (size_t i = 0; i < N; i++)
        memcpy(many + i * 18, "\x05\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0k", 18);
    node_asks(&node, 1, LIT(WAIT_K));
    const struct store_bytes b = {(const unsigned char *)many, sizeof(many) - 1};
    assert_int_equal(
        node_sends(&node, (struct relay_msg){.type = RELAY_DATA, .conn = 1, .data = b}), 0);
    node_asks(&node, 2, LIT("")); /* only opens */
    assert_int_equal(
        node_sends(&node, (struct relay_msg){.type = RELAY_DATA, .conn = 2, .data = set}), 0);
    store_server_stats(r->s, &st);
    assert_in_range(st.ops, 2, 2000);
    assert_int_equal(st.conns, 2);
    assert_int_equal(st.conns_total, 2);
    loop(r);
    store_server_stats(r->s, &st);
    assert_int_equal(st.ops, N + 2);
    store_carrier_free(node.carrier);
}

static void node_that_begins_again_is_served(void **state)
{
    struct rig *r = *state;
    struct node node;
    node_joins(r, &node);
    for (int i = 0; i < 3; i++) {
        node_asks(&node, 1, LIT(SET_K));
        assert_int_equal(node_sends(&node, (struct relay_msg){.type = RELAY_BEGIN}), 0);
    }
    assert_int_equal(keys(r), 1);
    node_asks(&node, 1, LIT(GET_K));
    assert_int_equal(node_sends(&node, (struct relay_msg){.type = RELAY_OPEN, .conn = 1}), -EPROTO);
    store_carrier_free(node.carrier);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nothing_is_read_before_admission),
        CASE(peer_that_leaves_before_admission_is_still_heard),
        CASE(refused_connection_has_done_nothing),
        CASE(too_many_connections_are_closed),
        CASE(faulty_peer_is_closed_and_counted),
        CASE(admitted_connection_is_served),
        CASE(reset_drops_keys_and_connections),
        CASE(waiter_is_told_and_served_on),
        CASE(stalled_client_that_leaves_is_not_polled),
        CASE(waits_end_for_clients_of_nodes_too),
        CASE(backlog_of_a_node_is_executed_in_turns),
        CASE(node_that_begins_again_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
