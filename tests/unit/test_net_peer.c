/* The owner of the other end of a local connection, for connections of this test. */
#include "base/auto.h"
#include "net/listen.h"
#include "net/peer_uid.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { NOBODY = 65534 };

struct pair {
    int listener, client, server;
    struct net_addr client_addr, server_addr; /* as the client sees them */
};

static struct net_addr name_of(int fd, int (*get)(int, struct sockaddr *, socklen_t *))
{
    struct sockaddr_storage ss;
    struct net_addr a;
    socklen_t len = sizeof(ss);
    assert_int_equal(get(fd, (struct sockaddr *)&ss, &len), 0);
    assert_int_equal(net_addr_from_sockaddr(&a, (struct sockaddr *)&ss, len), 0);
    return a;
}

static int own_name(int fd, struct sockaddr *sa, socklen_t *len)
{
    return getsockname(fd, sa, len);
}

static int peer_name(int fd, struct sockaddr *sa, socklen_t *len)
{
    return getpeername(fd, sa, len);
}

/* Connect a pair of sockets. False: this machine lacks the address. */
static bool set_up(struct pair *p, const char *listen_addr, const char *to)
{
    static const uint16_t any[] = {0};
    struct net_addr a;
    uint16_t port;
    p->listener = net_listen(listen_addr, any, 1, &port, NULL);
    if (p->listener < 0)
        return false;
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    const struct sockaddr *sa = &a.sa;
    if (strncmp(to, "::ffff:", 7) == 0) { /* IPv6 socket with an IPv4-mapped address */
        assert_int_equal(net_addr_parse(&a, to + 7, port), 0);
        mapped.sin6_addr.s6_addr[10] = mapped.sin6_addr.s6_addr[11] = 0xff;
        memcpy(mapped.sin6_addr.s6_addr + 12, &a.in.sin_addr, 4);
        sa = (struct sockaddr *)&mapped;
    } else {
        assert_int_equal(net_addr_parse(&a, to, port), 0);
    }
    p->client = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(p->client, sa, sa->sa_family == AF_INET ? sizeof(a.in) : sizeof(mapped)) < 0) {
        (void)close(p->client);
        (void)close(p->listener);
        return false;
    }
    p->server = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(p->server >= 0);
    p->client_addr = name_of(p->client, own_name);
    p->server_addr = name_of(p->client, peer_name);
    return true;
}

static void tear_down(struct pair *p)
{
    (void)close(p->client);
    (void)close(p->server);
    (void)close(p->listener);
}

static const struct {
    const char *listen_addr, *to;
} ways[] = {
    {"127.0.0.1", "127.0.0.1"},        {"::1", "::1"},    {"", "127.0.0.1"}, {"", "::1"},
    {"127.0.0.1", "::ffff:127.0.0.1"}, /* the client's socket is AF_INET6 */
    {"", "::ffff:127.0.0.1"},          {"", "127.9.8.7"},
};

static void peer_uid_of_own_connections_is_mine(void **state)
{
    struct net_peer *peer = *state;
    size_t done = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct pair p;
        uid_t uid = 12345;
        if (!set_up(&p, ways[i].listen_addr, ways[i].to))
            continue;
        done++;
        assert_int_equal(net_peer_uid(peer, &p.client_addr, &p.server_addr, &uid), 0);
        assert_int_equal(uid, geteuid());
        uid = 12345; /* the same for the other end */
        assert_int_equal(net_peer_uid(peer, &p.server_addr, &p.client_addr, &uid), 0);
        assert_int_equal(uid, geteuid());
        assert_int_equal(net_peer_own(peer, &p.client_addr, &p.server_addr, &uid), 0);
        tear_down(&p);
    }
    assert_true(done >= 3);
}

static void peer_uid_is_of_that_connection_only(void **state)
{
    struct net_peer *peer = *state;
    struct pair p;
    uid_t uid = 12345;
    assert_true(set_up(&p, "127.0.0.1", "127.0.0.1"));
    struct net_addr wrong = p.client_addr;
    net_addr_set_port(&wrong, (uint16_t)(net_addr_port(&wrong) ^ 1));
    assert_int_equal(net_peer_uid(peer, &wrong, &p.server_addr, &uid), -ENOENT);
    /* net_peer_uid() ignores the listener on that port */
    assert_int_equal(net_peer_uid(peer, &p.server_addr, &wrong, &uid), -ENOENT);
    assert_int_equal(net_addr_parse(&wrong, "127.0.0.2", net_addr_port(&p.client_addr)), 0);
    assert_int_equal(net_peer_uid(peer, &wrong, &p.server_addr, &uid), -ENOENT);
    assert_int_equal(net_addr_parse(&wrong, "::1", net_addr_port(&p.client_addr)), 0);
    assert_int_equal(net_peer_uid(peer, &wrong, &p.server_addr, &uid), -EINVAL);
    assert_int_equal(uid, 12345);
    tear_down(&p);
}

static void peer_uid_is_unknown_when_the_program_has_gone(void **state)
{
    struct net_peer *peer = *state;
    struct pair p;
    uid_t uid = 12345;
    assert_true(set_up(&p, "127.0.0.1", "127.0.0.1"));
    (void)close(p.client);
    assert_int_equal(net_peer_uid(peer, &p.client_addr, &p.server_addr, &uid), -ENOENT);
    assert_int_equal(uid, 12345);
    p.client = -1;
    tear_down(&p);
}

static void peer_uid_of_another_user_is_told(void **state)
{
    struct net_peer *peer = *state;
    struct pair p = {.client = -1};
    uid_t uid = 12345;
    uint16_t port = 0;
    int ends[2];
    if (geteuid() != 0) {
        print_message("skipped: only root can be somebody else\n");
        skip();
    }
    p.listener = net_listen("127.0.0.1", &port, 1, &port, NULL);
    assert_int_equal(net_addr_parse(&p.server_addr, "127.0.0.1", port), 0);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t child = fork();
    if (child == 0) {
        char c;
        int fd = setuid(NOBODY) == 0 ? socket(AF_INET, SOCK_STREAM, 0) : -1;
        (void)close(ends[1]);
        if (connect(fd, &p.server_addr.sa, p.server_addr.len) == 0)
            (void)!read(ends[0], &c, 1); /* until the test closes its end */
        _exit(0);
    }
    struct pollfd come = {.fd = p.listener, .events = POLLIN};
    assert_int_equal(poll(&come, 1, 20000), 1);
    p.server = accept4(p.listener, NULL, NULL, SOCK_CLOEXEC);
    p.client_addr = name_of(p.server, peer_name);
    assert_int_equal(net_peer_uid(peer, &p.client_addr, &p.server_addr, &uid), 0);
    assert_int_equal(uid, NOBODY);
    uid = 12345;
    assert_int_equal(net_peer_own(peer, &p.client_addr, &p.server_addr, &uid), -EPERM);
    assert_int_equal(uid, NOBODY);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)waitpid(child, NULL, 0);
    tear_down(&p);
}

static void reset(int fd)
{
    const struct linger now = {.l_onoff = 1};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
    (void)close(fd);
}

/* Connect from the port of the closed client. False: another program has taken the port. */
static bool connect_from_the_same_port(struct pair *p)
{
    struct net_addr source = p->client_addr;
    p->client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->client, &source.sa, source.len) < 0) {
        assert_int_equal(errno, EADDRINUSE);
        return false;
    }
    assert_int_equal(connect(p->client, &p->server_addr.sa, p->server_addr.len), 0);
    return true;
}

/* Set up a connection, send a byte, close it with `end`, and connect again from the same port. */
static void set_up_used_again(struct pair *p, void (*end)(int fd))
{
    for (int tries = 0; tries < 20; tries++) {
        assert_true(set_up(p, "127.0.0.1", "127.0.0.1"));
        assert_true(net_peer_is_connected(p->server));
        assert_int_equal(write(p->client, "x", 1), 1);
        end(p->client);
        if (connect_from_the_same_port(p))
            return;
        tear_down(p);
    }
    fail_msg("other programs took 20 ports at the moment they were free");
}

/* The first client's data can still be read, but the kernel reports the owner of the connection
 * that now uses the port. */
static void peer_that_has_reset_is_not_connected_whoever_has_its_port_now(void **state)
{
    struct net_peer *peer = *state;
    struct pair p;
    uid_t uid;
    char c;
    set_up_used_again(&p, reset);
    assert_int_equal(net_peer_own(peer, &p.client_addr, &p.server_addr, &uid), 0);
    assert_false(net_peer_is_connected(p.server));
    assert_int_equal(recv(p.server, &c, 1, MSG_PEEK), 1);
    tear_down(&p);
}

static void peer_that_has_closed_in_good_order_is_still_connected(void **state)
{
    struct pair p;
    char c;
    (void)state;
    assert_true(set_up(&p, "127.0.0.1", "127.0.0.1"));
    assert_int_equal(shutdown(p.client, SHUT_WR), 0);
    assert_int_equal(recv(p.server, &c, 1, 0), 0);
    assert_true(net_peer_is_connected(p.server));
    tear_down(&p);
    assert_false(net_peer_is_connected(-1));
}

static void vanish(int fd)
{
    static const int on = 1;
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)), 0);
    (void)close(fd);
}

/* A half-open connection: the first client has vanished without RST, and its port is used again. */
static void peer_that_vanished_is_not_connected_once_its_port_is_used_again(void **state)
{
    static const int on = 1;
    struct pair p;
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool may = setsockopt(probe, IPPROTO_TCP, TCP_REPAIR, &on, sizeof(on)) == 0;
    (void)state;
    (void)close(probe);
    if (!may) {
        print_message("skipped: a socket is closed in silence with CAP_NET_ADMIN alone\n");
        skip();
    }
    set_up_used_again(&p, vanish);
    assert_false(net_peer_is_connected(p.server)); /* its SYN ended the half-open connection */
    tear_down(&p);
}

static void peer_can_be_asked_about_without_a_free_descriptor(void **state)
{
    struct net_peer *peer = *state;
    struct pair p;
    struct rlimit before, none;
    uid_t uid = 12345;
    assert_true(set_up(&p, "127.0.0.1", "127.0.0.1"));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int rc = net_peer_own(peer, &p.client_addr, &p.server_addr, &uid);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, 0);
    tear_down(&p);
}

static int asker_new(void **state)
{
    return net_peer_new((struct net_peer **)state);
}

static int asker_free(void **state)
{
    net_peer_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peer_uid_of_own_connections_is_mine),
        cmocka_unit_test(peer_uid_is_of_that_connection_only),
        cmocka_unit_test(peer_uid_is_unknown_when_the_program_has_gone),
        cmocka_unit_test(peer_uid_of_another_user_is_told),
        cmocka_unit_test(peer_that_has_reset_is_not_connected_whoever_has_its_port_now),
        cmocka_unit_test(peer_that_has_closed_in_good_order_is_still_connected),
        cmocka_unit_test(peer_that_vanished_is_not_connected_once_its_port_is_used_again),
        cmocka_unit_test(peer_can_be_asked_about_without_a_free_descriptor),
    };
    return cmocka_run_group_tests(tests, asker_new, asker_free);
}
