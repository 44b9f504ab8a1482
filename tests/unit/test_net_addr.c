/* Addresses as text, host:port, interfaces and NCCL's choice among them. */
#include "net/addr.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void addr_refuses_what_is_not_numeric(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",           "node1",      "10.0.0",       "10.0.0.256",  "10.0.0.1 ", "[::1]",
        ":",          ":::1",       "::1%",         "::1%nosuch0", "fe80::1%0", "1::2::3",
        "10.0.0.1:5", "0x7f.0.0.1", "::ffff:1.2.3", "%lo"};
    struct net_addr a = {.len = 0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (net_addr_parse(&a, bad[i], 1) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
    char longer[200];
    memset(longer, '1', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(net_addr_parse(&a, longer, 1), -EINVAL);
    assert_int_equal(a.len, 0);
}

static void addr_text_is_the_shortest_form(void **state)
{
    (void)state;
    static const struct {
        const char *in, *host, *text;
        bool loopback;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1", "10.0.0.1:80", false},
        {"127.3.2.1", "127.3.2.1", "127.3.2.1:80", true},
        {"::1", "::1", "[::1]:80", true},
        {"FD00:0:0:0:0:0:0:1", "fd00::1", "[fd00::1]:80", false},
        {"::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1:80", false}, /* mapped: IPv4 */
        {"::ffff:127.0.0.1", "127.0.0.1", "127.0.0.1:80", true},
        {"fe80::1%lo", "fe80::1%lo", "[fe80::1%lo]:80", false},
        {"fe80::1%4242", "fe80::1%4242", "[fe80::1%4242]:80", false},
        {"fd00::1%lo", "fd00::1", "[fd00::1]:80", false}, /* the scope is ignored here */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct net_addr a;
        char text[NET_ADDR_TEXT + 8];
        assert_int_equal(net_addr_parse(&a, rows[i].in, 80), 0);
        assert_string_equal(net_addr_host(&a, text), rows[i].host);
        assert_string_equal(net_addr_text(&a, text), rows[i].text);
        assert_int_equal(net_addr_is_loopback(&a), rows[i].loopback);
        assert_int_equal(net_addr_port(&a), 80);
        net_addr_set_port(&a, 65535);
        assert_int_equal(net_addr_port(&a), 65535);
    }
}

static void addr_of_other_families_and_short_ones_are_refused(void **state)
{
    (void)state;
    struct net_addr a = {.len = 0};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct sockaddr un = {.sa_family = AF_UNIX};
    assert_int_equal(net_addr_from_sockaddr(&a, &un, sizeof(un)), -EAFNOSUPPORT);
    assert_int_equal(net_addr_from_sockaddr(&a, (struct sockaddr *)&in6, sizeof(in6) - 1),
                     -EAFNOSUPPORT);
    assert_int_equal(a.len, 0);
    char text[NET_ADDR_TEXT + 8];
    assert_string_equal(net_addr_host(&a, text), "");
    assert_int_equal(net_addr_port(&a), 0);
    assert_false(net_addr_is_loopback(&a));
    assert_false(net_addr_same_host(&a, &a));
}

static void same_host_ignores_ports_and_missing_scopes(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1", true},        {"10.0.0.1", "10.0.0.2", false},
        {"10.0.0.1", "::ffff:10.0.0.1", true}, {"::1", "127.0.0.1", false},
        {"fd00::1", "fd00::1", true},          {"fe80::1%7", "fe80::1%8", false},
        {"fe80::1%7", "fe80::1", true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct net_addr a;
        struct net_addr b;
        assert_int_equal(net_addr_parse(&a, rows[i].a, 1), 0);
        assert_int_equal(net_addr_parse(&b, rows[i].b, 2), 0);
        assert_int_equal(net_addr_same_host(&a, &b), rows[i].same);
    }
}

static void hostport_is_split(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port; /* negative: refused */
    } rows[] = {
        {"node1:29500", "node1", 29500},
        {"node1", "node1", 0},
        {"10.0.0.1:1", "10.0.0.1", 1},
        {"[fd00::1]:80", "fd00::1", 80},
        {"[fd00::1]", "fd00::1", 0},
        {"fd00::1", "fd00::1", 0},
        {"::", "::", 0},
        {"", "", -1},
        {":80", "", -1},
        {"node1:", "", -1},
        {"node1:0", "", -1},
        {"node1:65536", "", -1},
        {"node1:-1", "", -1},
        {"node1:80x", "", -1},
        {"[fd00::1", "", -1},
        {"[fd00::1]80", "", -1},
        {"[]:80", "", -1},
        {"[fd00::1]:", "", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char host[256] = "untouched";
        uint16_t port = 7;
        struct dd_err err = {.text = ""};
        int rc = net_split_hostport(rows[i].text, host, sizeof(host), &port, &err);
        if ((rc < 0) != (rows[i].port < 0))
            fail_msg("'%s': %d %s", rows[i].text, rc, err.text);
        assert_string_equal(host, rc < 0 ? "untouched" : rows[i].host);
        assert_int_equal(port, rc < 0 ? 7 : rows[i].port);
        assert_true(rc == 0 || (rc == -EINVAL && err.text[0] != '\0'));
    }
    char host[8];
    uint16_t port;
    assert_int_equal(net_split_hostport("12345678", host, sizeof(host), &port, NULL), -EINVAL);
    assert_int_equal(net_split_hostport("1234567", host, sizeof(host), &port, NULL), 0);
}

static void interfaces_have_the_loopback(void **state)
{
    (void)state;
    struct net_iface *ifs;
    struct net_addr a;
    size_t n;
    bool seen = false;
    char name[16];
    assert_int_equal(net_ifaces(&ifs, &n, NULL), 0);
    for (size_t i = 0; i < n; i++)
        seen = seen || (ifs[i].loopback && ifs[i].up && net_addr_is_loopback(&ifs[i].addr));
    free(ifs);
    assert_true(seen);
    assert_int_equal(net_addr_parse(&a, "127.0.0.1", 99), 0);
    assert_int_equal(net_iface_of(&a, name), 0);
    assert_string_equal(name, "lo");
    assert_int_equal(net_addr_parse(&a, "192.0.2.77", 0), 0); /* reserved for documentation */
    assert_int_equal(net_iface_of(&a, name), -ENOENT);
}

static void address_of_an_interface_is_good_for_others(void **state)
{
    (void)state;
    static const struct {
        const char *addrs[3];
        const char *best; /* NULL: none */
    } rows[] = {
        {{"10.0.0.1", "10.0.0.2"}, "10.0.0.1"},
        {{"fe80::1", "fd00::1", "10.0.0.1"}, "10.0.0.1"},
        {{"fe80::1", "fd00::1", "169.254.7.7"}, "fd00::1"},
        {{"fe80::1"}, NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct net_iface ifs[4] = {{.name = "eth0"}};
        struct net_addr a;
        char text[NET_ADDR_TEXT];
        size_t n = 1;
        assert_int_equal(net_addr_parse(&ifs[0].addr, "10.9.9.9", 0), 0);
        for (; n <= 3 && rows[i].addrs[n - 1] != NULL; n++) {
            memcpy(ifs[n].name, "eth1", 5);
            assert_int_equal(net_addr_parse(&ifs[n].addr, rows[i].addrs[n - 1], 0), 0);
        }
        int rc = net_iface_addr(ifs, n, "eth1", &a);
        assert_string_equal(rc == 0 ? net_addr_host(&a, text) : "none",
                            rows[i].best != NULL ? rows[i].best : "none");
    }
}

/* Each row: "name address" in the kernel's order; an interface "-name" is down. */
static void nccl_choice_is_foreseen(void **state)
{
    (void)state;
    static const struct {
        const char *ifs[5];
        const char *choice; /* NULL: none */
    } rows[] = {
        {{NULL}, NULL},
        {{"lo 127.0.0.1", "eth0 10.0.0.1", "eth1 10.1.0.1"}, "eth0"},
        {{"lo 127.0.0.1", "eth1 10.1.0.1", "eth0 10.0.0.1"}, "eth1"},
        {{"lo 127.0.0.1", "eth0 10.0.0.1", "ib0 10.2.0.1"}, "ib0"},
        {{"eth0 10.0.0.1", "ibp3s0 10.2.0.1"}, "ibp3s0"},
        {{"lo 127.0.0.1", "-eth0 10.0.0.1", "ens3 10.1.0.1"}, "ens3"},
        {{"lo 127.0.0.1", "docker0 172.17.0.1"}, "docker0"},
        {{"virbr0 192.168.122.1", "lo 127.0.0.1"}, "lo"},
        {{"virbr0 192.168.122.1", "lo ::1"}, "virbr0"},
        {{"lo ::1"}, NULL},
        {{"lo 127.0.0.1", "docker0 172.17.0.1", "br-1 172.18.0.1"}, "br-1"},
        {{"-eth0 10.0.0.1"}, NULL},
        {{"lo 127.0.0.1", "eth0 fd00::1"}, "eth0"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct net_iface ifs[5] = {0};
        size_t n = 0;
        char name[16];
        char addr[64];
        char out[16] = "";
        for (; n < 5 && rows[i].ifs[n] != NULL; n++) {
            assert_int_equal(sscanf(rows[i].ifs[n], "%15s %63s", name, addr), 2);
            ifs[n].up = name[0] != '-';
            (void)snprintf(ifs[n].name, sizeof(ifs[n].name), "%s", name + !ifs[n].up);
            assert_int_equal(net_addr_parse(&ifs[n].addr, addr, 0), 0);
        }
        int rc = net_iface_nccl_choice(ifs, n, out);
        assert_int_equal(rc, rows[i].choice == NULL ? -ENOENT : 0);
        assert_string_equal(out, rows[i].choice == NULL ? "" : rows[i].choice);
    }
}

static void workers_get_the_interface_of_the_address_or_the_named_one(void **state)
{
    (void)state;
    struct net_worker_ifaces ifs;
    struct net_addr addr;
    assert_int_equal(net_addr_parse(&addr, "127.64.3.2", 1), 0);
    net_worker_ifaces_find(&ifs, NULL, &addr, true);
    assert_string_equal(ifs.used, "lo"); /* although lo does not list that address */
    assert_string_equal(ifs.nccl, "");   /* not needed on a single node */
    net_worker_ifaces_find(&ifs, "ib7", NULL, true);
    assert_string_equal(ifs.used, "ib7");
    assert_int_equal(net_addr_parse(&addr, "192.0.2.1", 1), 0); /* reserved for documentation */
    net_worker_ifaces_find(&ifs, NULL, &addr, false);
    assert_string_equal(ifs.used, "");
    assert_string_equal(ifs.nccl, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_get_the_interface_of_the_address_or_the_named_one),
        cmocka_unit_test(addr_refuses_what_is_not_numeric),
        cmocka_unit_test(addr_text_is_the_shortest_form),
        cmocka_unit_test(addr_of_other_families_and_short_ones_are_refused),
        cmocka_unit_test(same_host_ignores_ports_and_missing_scopes),
        cmocka_unit_test(hostport_is_split),
        cmocka_unit_test(interfaces_have_the_loopback),
        cmocka_unit_test(address_of_an_interface_is_good_for_others),
        cmocka_unit_test(nccl_choice_is_foreseen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
