/* net/handshake_pool: silent callers do not lock out others, and the listener does not spin when
 * file descriptors run out. */
#include "net/handshake_pool.h"
#include "net/listen.h"

#include "base/io.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MOST = 2, LIMIT_MS = 60000, A_WHILE_MS = 350 };

struct listener {
    struct event_base *base;
    struct handshake_pool *pool;
    struct net_key key;
    struct net_key_input in;
    int fd;
    uint16_t port;
};

static void on_link(void *arg, struct link *l)
{
    (void)arg;
    link_free(l);
    fail();
}

static void listener_open(struct listener *d, unsigned timeout_ms)
{
    const uint16_t any = 0;
    struct dd_err err = {0};
    *d = (struct listener){.base = event_base_new(), .in = {.insecure = true}};
    d->fd = net_listen("127.0.0.1", &any, 1, &d->port, &err);
    assert_true(d->fd >= 0);
    const struct handshake_pool_cfg cfg = {
        .base = d->base,
        .accept = {.job_id = "job", .key = &d->key, .key_in = &d->in, .timeout_ms = timeout_ms},
        .fd = d->fd,
        .most = MOST,
        .on_link = on_link};
    assert_int_equal(handshake_pool_new(&d->pool, &cfg, &err), 0);
}

static void listener_close(struct listener *d)
{
    handshake_pool_free(d->pool);
    close(d->fd);
    event_base_free(d->base);
}

static void call(const struct listener *d, int fd)
{
    const struct sockaddr_in a = {.sin_family = AF_INET,
                                  .sin_port = htons(d->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
}

static bool is_closed(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&p, 1, 0) == 1;
}

static void turn_until_closed(const struct listener *d, int fd)
{
    const uint64_t limit = dd_now_ns() + LIMIT_MS * DD_NS_PER_MS;
    while (!is_closed(fd) && dd_now_ns() < limit)
        assert_true(event_base_loop(d->base, EVLOOP_NONBLOCK) >= 0);
    assert_true(is_closed(fd));
}

static void the_oldest_silent_connection_makes_room(void **state)
{
    (void)state;
    struct listener d;
    int fds[MOST + 1];
    listener_open(&d, LIMIT_MS);
    for (int i = 0; i <= MOST; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM, 0);
        call(&d, fds[i]);
    }
    turn_until_closed(&d, fds[0]);
    assert_false(is_closed(fds[1]) || is_closed(fds[MOST]));
    listener_close(&d);
    for (int i = 0; i <= MOST; i++)
        close(fds[i]);
}

static void on_while(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    *(bool *)arg = true;
}

/* Return the number of iterations of the event loop within A_WHILE_MS. */
static unsigned turns_in_a_while(const struct listener *d)
{
    const struct timeval a_while = dd_timeval(A_WHILE_MS * DD_NS_PER_MS);
    bool over = false;
    unsigned n = 0;
    assert_int_equal(event_base_once(d->base, -1, EV_TIMEOUT, on_while, &over, &a_while), 0);
    while (!over) {
        assert_true(event_base_loop(d->base, EVLOOP_ONCE) >= 0);
        n++;
    }
    return n;
}

static void without_descriptors_a_connection_waits_and_is_accepted_later(void **state)
{
    (void)state;
    struct listener d;
    struct rlimit before;
    listener_open(&d, 100);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int next = dup(fd);
    close(next);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {(rlim_t)next, before.rlim_max};
    call(&d, fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const unsigned turns = turns_in_a_while(&d);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(turns < 50);
    assert_false(is_closed(fd));
    turn_until_closed(&d, fd); /* accepted, and closed after 100 ms of silence */
    listener_close(&d);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_silent_connection_makes_room),
        cmocka_unit_test(without_descriptors_a_connection_waits_and_is_accepted_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
