/* Listening sockets. */
#include "base/auto.h"
#include "net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const uint16_t any[] = {0};

static bool connects(const char *addr, uint16_t port)
{
    struct net_addr a;
    assert_int_equal(net_addr_parse(&a, addr, port), 0);
    DD_AUTO(fd) int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, &a.sa, a.len) == 0;
}

static void listen_refuses_bad_addresses(void **state)
{
    (void)state;
    struct dd_err err = {.text = ""};
    uint16_t port = 7;
    assert_int_equal(net_listen("node1", any, 1, &port, &err), -EINVAL);
    assert_string_equal(err.text, "cannot listen on 'node1': not a numeric address");
    assert_int_equal(net_listen("192.0.2.77", any, 1, &port, &err), -EADDRNOTAVAIL);
    assert_non_null(strstr(err.text, "192.0.2.77"));
    assert_int_equal(net_listen(NULL, any, 0, &port, &err), -EINVAL);
    assert_int_equal(port, 7);
}

static void listen_everywhere_takes_both_families(void **state)
{
    (void)state;
    uint16_t port = 0;
    uint16_t other;
    DD_AUTO(fd) int v6 = net_listen("::1", any, 1, &other, NULL); /* probes for IPv6 */
    DD_AUTO(fd) int fd = net_listen("", any, 1, &port, NULL);
    assert_true(fd >= 0 && port > 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(connects("127.0.0.1", port));
    assert_true(connects("127.4.5.6", port));
    if (v6 >= 0)
        assert_true(connects("::1", port));
}

static void listen_on_one_address_is_closed_on_others(void **state)
{
    (void)state;
    uint16_t port = 0;
    DD_AUTO(fd) int fd = net_listen("127.0.0.1", any, 1, &port, NULL);
    assert_true(fd >= 0);
    assert_true(connects("127.0.0.1", port));
    assert_false(connects("127.0.0.2", port));
}

static void listen_takes_the_first_free_port(void **state)
{
    (void)state;
    uint16_t ports[3];
    uint16_t port = 0;
    DD_AUTO(fd) int a = net_listen("127.0.0.1", any, 1, &ports[0], NULL);
    DD_AUTO(fd) int b = net_listen("127.0.0.1", any, 1, &ports[1], NULL);
    int c = net_listen("127.0.0.1", any, 1, &ports[2], NULL);
    assert_true(a >= 0 && b >= 0 && c >= 0);
    (void)close(c);
    DD_AUTO(fd) int fd = net_listen("127.0.0.1", ports, 3, &port, NULL);
    assert_true(fd >= 0);
    assert_int_equal(port, ports[2]);
}

static void listen_names_the_holder_when_nothing_is_free(void **state)
{
    (void)state;
    uint16_t ports[2];
    uint16_t port = 0;
    char want[200];
    struct dd_err err = {.text = ""};
    DD_AUTO(fd) int a = net_listen("127.0.0.1", any, 1, &ports[0], NULL);
    DD_AUTO(fd) int b = net_listen("::1", any, 1, &ports[1], NULL);
    bool v6 = b >= 0;
    assert_true(a >= 0);
    assert_int_equal(net_listen("127.0.0.1", ports, 1, &port, &err), -EADDRINUSE);
    (void)snprintf(want, sizeof(want), "port %u is in use by test_net_listen (pid %d)", ports[0],
                   (int)getpid());
    assert_string_equal(err.text, want);
    ports[1] = v6 ? ports[1] : ports[0];
    assert_int_equal(net_listen("", ports, 2, &port, &err), -EADDRINUSE);
    (void)snprintf(want, sizeof(want),
                   "cannot listen on ports %u (held by test_net_listen (pid %d)), "
                   "%u (held by test_net_listen (pid %d)): ",
                   ports[0], (int)getpid(), ports[1], (int)getpid());
    if (strstr(err.text, want) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, want);
    uint16_t both[] = {ports[0], ports[0]};
    assert_int_equal(net_listen("127.0.0.1", both, 2, &port, &err), -EADDRINUSE);
    assert_int_equal(port, 0);
}

/* Any user can hold a port with a program of any name, and root can read the name. */
static void the_holders_name_does_not_control_the_terminal(void **state)
{
    (void)state;
    uint16_t port;
    char own[17];
    struct dd_err err = {.text = ""};
    DD_AUTO(fd) int fd = net_listen("127.0.0.1", any, 1, &port, NULL);
    assert_true(fd >= 0);
    assert_int_equal(prctl(PR_GET_NAME, own), 0);
    assert_int_equal(prctl(PR_SET_NAME, "\033]2;bad\a\033[7mxy"), 0);
    assert_int_equal(net_listen("127.0.0.1", &port, 1, &port, &err), -EADDRINUSE);
    assert_int_equal(prctl(PR_SET_NAME, own), 0);
    assert_non_null(strstr(err.text, " is in use by \\x1b]2;bad\\x07\\x1b[7mxy (pid "));
}

/* ---- listeners on a reserved port ---- */

enum { OWNER_UID = 20001, STRANGER_UID = 20002 };
enum { NONE = 0, ADDR = 1, PORT = 2, BOTH = ADDR | PORT };

/* Reserve a port in a child of OWNER_UID until *ret_end is closed. */
static pid_t hold(enum net_reserve how, uint16_t *ret_port, int *ret_end)
{
    int up[2];
    int down[2];
    assert_int_equal(pipe(up), 0);
    assert_int_equal(pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd;
        uint16_t port = 0;
        (void)close(down[1]);
        if (setresgid(OWNER_UID, OWNER_UID, OWNER_UID) < 0 ||
            setresuid(OWNER_UID, OWNER_UID, OWNER_UID) < 0 || net_reserve(how, &fd, &port) < 0 ||
            write(up[1], &port, sizeof(port)) < 0)
            _exit(1);
        _exit(read(down[0], &port, 1) < 0);
    }
    (void)close(up[1]);
    (void)close(down[0]);
    assert_int_equal(read(up[0], ret_port, sizeof(*ret_port)), sizeof(*ret_port));
    (void)close(up[0]);
    *ret_end = down[1];
    return pid;
}

static int listen_with(const char *addr, uint16_t port, int options)
{
    static const int on = 1;
    static const int off = 0;
    struct net_addr a;
    (void)net_addr_parse(&a, addr, port);
    int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (a.sa.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if ((options & ADDR) != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if ((options & PORT) != 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    return bind(fd, &a.sa, a.len) == 0 && listen(fd, 1) == 0 ? fd : -1;
}

/* True if a server of this uid, with these socket options, can listen on the port. */
static bool listens_as(uid_t uid, const char *addr, uint16_t port, int options)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ||
              listen_with(addr, port, options) < 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

static void who_can_listen_on_a_reserved_port(void **state)
{
    (void)state;
    static const char *const addrs[] = {"0.0.0.0", "127.0.0.1", "::", "::1"};
    static const struct {
        enum net_reserve how;
        int options;
        bool owner, stranger;
    } rows[] = {
        {NET_RESERVE_PORT, NONE, false, false}, {NET_RESERVE_PORT, ADDR, false, false},
        {NET_RESERVE_PORT, PORT, true, false},  {NET_RESERVE_PORT, BOTH, true, false},
        {NET_RESERVE_ADDR, NONE, false, false}, {NET_RESERVE_ADDR, ADDR, true, true},
        {NET_RESERVE_ADDR, PORT, false, false}, {NET_RESERVE_ADDR, BOTH, true, true},
    };
    uint16_t port;
    int end;
    if (geteuid() != 0)
        skip();
    const int v6 = listen_with("::1", 0, NONE); /* the machine may have IPv6 without addresses */
    if (v6 >= 0)
        (void)close(v6);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t k = 0; k < (v6 >= 0 ? 4 : 2); k++) {
            pid_t holder = hold(rows[i].how, &port, &end);
            bool stranger = listens_as(STRANGER_UID, addrs[k], port, rows[i].options);
            bool owner = listens_as(OWNER_UID, addrs[k], port, rows[i].options);
            if (stranger != rows[i].stranger || owner != rows[i].owner)
                fail_msg("row %zu, %s: stranger %d, owner %d", i, addrs[k], stranger, owner);
            (void)close(end);
            assert_int_equal(waitpid(holder, NULL, 0), holder);
        }
}

static void a_stranger_cannot_listen_beside_the_owners_server(void **state)
{
    (void)state;
    uint16_t port;
    int end;
    int ready[2];
    if (geteuid() != 0)
        skip();
    pid_t holder = hold(NET_RESERVE_PORT, &port, &end);
    assert_int_equal(pipe(ready), 0);
    pid_t server = fork();
    if (server == 0) {
        char c = 'y';
        if (setresgid(OWNER_UID, OWNER_UID, OWNER_UID) < 0 ||
            setresuid(OWNER_UID, OWNER_UID, OWNER_UID) < 0 ||
            listen_with("0.0.0.0", port, BOTH) < 0 || write(ready[1], &c, 1) < 0)
            _exit(1);
        (void)pause();
    }
    (void)close(ready[1]);
    char c;
    assert_int_equal(read(ready[0], &c, 1), 1);
    for (int options = NONE; options <= BOTH; options++) {
        assert_false(listens_as(STRANGER_UID, "0.0.0.0", port, options));
        assert_false(listens_as(STRANGER_UID, "127.0.0.1", port, options));
    }
    assert_int_equal(kill(server, SIGKILL), 0);
    assert_int_equal(waitpid(server, NULL, 0), server);
    (void)close(ready[0]);
    (void)close(end);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
}

static void the_taker_of_one_of_several_ports_is_named(void **state)
{
    (void)state;
    uint16_t ports[3] = {0};
    int ends[3], holders[3];
    uint16_t port = 0;
    uid_t uid = 0;
    char c = 'y';
    int ready[2];
    if (geteuid() != 0)
        skip();
    for (size_t i = 0; i < 3; i++)
        holders[i] = hold(NET_RESERVE_ADDR, &ports[i], &ends[i]);
    assert_false(net_ports_taken(ports, 3, &port, &uid));
    assert_int_equal(pipe(ready), 0);
    const pid_t taker = fork();
    if (taker == 0) {
        if (setresuid(STRANGER_UID, STRANGER_UID, STRANGER_UID) < 0 ||
            listen_with("127.0.0.1", ports[1], ADDR) < 0 || write(ready[1], &c, 1) < 0)
            _exit(1);
        (void)pause();
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_true(net_ports_taken(ports, 3, &port, &uid));
    assert_int_equal(port, ports[1]);
    assert_int_equal(uid, STRANGER_UID);
    assert_false(net_ports_taken(ports, 1, &port, &uid));
    assert_int_equal(kill(taker, SIGKILL), 0);
    assert_int_equal(waitpid(taker, NULL, 0), taker);
    (void)close(ready[0]);
    for (size_t i = 0; i < 3; i++)
        (void)close(ends[i]); /* each holder has inherited the ends of those before it */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(waitpid(holders[i], NULL, 0), holders[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listen_refuses_bad_addresses),
        cmocka_unit_test(listen_everywhere_takes_both_families),
        cmocka_unit_test(listen_on_one_address_is_closed_on_others),
        cmocka_unit_test(listen_takes_the_first_free_port),
        cmocka_unit_test(listen_names_the_holder_when_nothing_is_free),
        cmocka_unit_test(the_holders_name_does_not_control_the_terminal),
        cmocka_unit_test(who_can_listen_on_a_reserved_port),
        cmocka_unit_test(a_stranger_cannot_listen_beside_the_owners_server),
        cmocka_unit_test(the_taker_of_one_of_several_ports_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
