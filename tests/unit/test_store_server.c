/* store/store_server: the start, admission and end of connections. test_store_c10d.c covers
 * requests, tests/e2e/test_store_wire.py many connections on real sockets. */
#include "store/store_server.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
