/* Listening sockets. */
#include "base/auto.h"
#include "net/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

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
    assert_string_equal(err.text, "'node1' is not a numeric address to listen on");
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
    DD_AUTO(fd) int v6 = net_listen("::1", any, 1, &other, NULL); /* is there IPv6? */
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
    assert_int_equal(net_listen("", ports, v6 ? 2 : 1, &port, &err), -EADDRINUSE);
    (void)snprintf(want, sizeof(want), "%u (held by test_net_listen (pid %d))", ports[0],
                   (int)getpid());
    if (strstr(err.text, want) == NULL)
        fail_msg("'%s' does not say '%s'", err.text, want);
    (void)snprintf(want, sizeof(want), "%u (held by test_net_listen (pid %d))", ports[1],
                   (int)getpid());
    assert_true(!v6 || strstr(err.text, want) != NULL);
    assert_non_null(strstr(err.text, "--master-port"));
    uint16_t both[] = {ports[0], ports[0]};
    assert_int_equal(net_listen("127.0.0.1", both, 2, &port, &err), -EADDRINUSE);
    assert_int_equal(port, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listen_refuses_bad_addresses),
        cmocka_unit_test(listen_everywhere_takes_both_families),
        cmocka_unit_test(listen_on_one_address_is_closed_on_others),
        cmocka_unit_test(listen_takes_the_first_free_port),
        cmocka_unit_test(listen_names_the_holder_when_nothing_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
