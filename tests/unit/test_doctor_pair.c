/* doctor --net: the measurement between two processes on loopback, and what the figures of all
 * nodes show. */
#include "base/auto.h"
#include "doctor/judge.h"
#include "doctor/pair.h"
#include "doctor/pair_figures.h"
#include "net/addr.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 60000 }; /* only to end a test that hangs */

/* Start a server, and return its address. */
static struct net_addr served(struct pair_server *s, unsigned limit_ms)
{
    struct net_addr to;
    struct dd_err err = {0};
    if (pair_serve(s, limit_ms, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(net_addr_parse(&to, "127.0.0.1", s->port), 0);
    return to;
}

/* The server's process ends by itself. */
static void ends(struct pair_server *s)
{
    struct pollfd p = {.fd = s->alive, .events = POLLIN};
    assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
    pair_server_done(s, 0);
    assert_int_equal(s->pid, 0);
}

static void one_client_without_the_token_and_many_silent_ones_keep_nobody_out(void **state)
{
    (void)state;
    struct pair_server s;
    struct pair_result r;
    struct dd_err err = {0};
    char wrong[PAIR_TOKEN + 1];
    int fds[40];
    const struct net_addr to = served(&s, LIMIT_MS);
    memcpy(wrong, s.token, sizeof(wrong));
    wrong[PAIR_TOKEN - 1] ^= 1;
    assert_true(pair_measure(&r, &to, NULL, wrong, &err) < 0);
    assert_non_null(strstr(err.text, "127.0.0.1"));
    /* the server still waits for the one that has it */
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        fds[i] = net_iface_connect(NULL, &to, LIMIT_MS);
        assert_true(fds[i] >= 0);
    }
    if (pair_measure(&r, &to, NULL, s.token, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        close(fds[i]);
    assert_true(r.round_trips > 0 && r.round_trips <= PAIR_ECHOES_MAX && r.latency_ns > 0);
    assert_true(r.bytes > 0 && r.bytes <= ((uint64_t)PAIR_STREAM_MIB_MAX + 1) << 20);
    assert_true(r.took_ns > 0);
    ends(&s);
}

static void a_server_without_a_client_ends(void **state)
{
    (void)state;
    struct pair_server s;
    (void)served(&s, 1);
    ends(&s);
}

static void a_server_that_ends_early_fails_the_measurement(void **state)
{
    (void)state;
    struct pair_server s;
    struct pair_result r;
    struct dd_err err = {0};
    const struct net_addr to = served(&s, LIMIT_MS);
    pair_server_done(&s, 0);
    assert_int_equal(pair_measure(&r, &to, NULL, "0123456789abcdef0123456789abcdef", &err),
                     -ECONNREFUSED);
    assert_non_null(strstr(err.text, "cannot connect to 127.0.0.1:"));
}

static void a_server_ends_when_its_parent_is_killed(void **state)
{
    (void)state;
    int pipes[2];
    pid_t pid = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1),
                     0); /* the server becomes a child of this process */
    assert_int_equal(pipe(pipes), 0);
    const pid_t parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        struct pair_server s;
        struct dd_err err = {0};
        if (pair_serve(&s, LIMIT_MS * 10, &err) < 0 ||
            write(pipes[1], &s.pid, sizeof(s.pid)) != (ssize_t)sizeof(s.pid))
            _exit(1);
        (void)raise(SIGKILL);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &pid, sizeof(pid)), sizeof(pid));
    close(pipes[0]);
    (void)alarm(LIMIT_MS / 1000);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)alarm(0);
}

static void offers_are_parsed(void **state)
{
    (void)state;
    struct pair_server s = {.pid = 1, .port = 4711, .token = "0123456789abcdef0123456789abcdef"};
    struct pair_offer o;
    char text[200];
    assert_int_equal(pair_offer(&s, "fd00::1", text, sizeof(text)), 0);
    assert_int_equal(pair_offer_parse(&o, text), 0);
    assert_string_equal(o.address, "fd00::1");
    assert_int_equal(o.port, 4711);
    assert_string_equal(o.token, s.token);
    s.pid = 0;
    assert_int_equal(pair_offer(&s, "10.0.0.1", text, sizeof(text)), 0);
    assert_int_equal(pair_offer_parse(&o, text), 0);
    assert_string_equal(o.address, "10.0.0.1");
    assert_int_equal(o.port, 0);
    static const char *const bad[] = {"a/0/0123456789abcdef0123456789abcdef",
                                      "a/1",
                                      "a/1/",
                                      "a/1/0123",
                                      "a/99999/0123456789abcdef0123456789abcdef",
                                      "a/x/0123456789abcdef0123456789abcdef"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(pair_offer_parse(&o, bad[i]), -EINVAL);
}

/* ---- the figures ---- */

struct measured {
    json_int_t latency_ns, bytes;
    const char *error;
};

/* The results of n nodes, n1 and so on. */
static json_t *looks_of(const struct measured *m, int n)
{
    json_t *looks = json_array();
    for (int i = 0; i < n; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "n%d", i + 1);
        assert_int_equal(
            json_array_append_new(looks, json_pack("{s:s,s:i,s:{s:i,s:s,s:s,s:I,s:I,s:I}}", "node",
                                                   name, "index", i, "net", "to", (i + 1) % n,
                                                   "address", "10.0.0.1", "error", m[i].error,
                                                   "latency_ns", m[i].latency_ns, "bytes",
                                                   m[i].bytes, "took_ns", (json_int_t)1000000000)),
            0);
    }
    return looks;
}

/* Return the table, and the finding about the network or "", for these results. */
static void shown(const struct measured *m, int n, char table[4096], char finding[1024])
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(4096);
    struct pair_figures f;
    char names[32];
    size_t i;
    const json_t *one;
    (void)snprintf(names, sizeof(names), "n[1-%d]", n);
    assert_int_equal(hostlist_parse(&nodes, names, NULL), 0);
    json_t *looks = looks_of(m, n);
    assert_int_equal(pair_figures_of(&f, looks, nodes), 0);
    assert_int_equal(pair_figures_write(&f, &out), 0);
    (void)snprintf(table, 4096, "%s", dd_buf_str(&out));
    pair_figures_done(&f);
    json_t *findings = doctor_judge(looks, nodes, NULL);
    finding[0] = '\0';
    json_array_foreach (findings, i, one)
        if (strstr(json_string_value(json_object_get(one, "what")), "n2") != NULL)
            (void)snprintf(finding, 1024, "%s: %s%s",
                           json_string_value(json_object_get(one, "nodes")),
                           json_is_true(json_object_get(one, "hint")) ? "hint: " : "",
                           json_string_value(json_object_get(one, "what")));
    json_decref(findings);
    json_decref(looks);
}

static void a_slow_pair_is_marked_and_found(void **state)
{
    (void)state;
    static const struct measured m[] = {{30000, 120000000, ""},
                                        {31000, 1250000000, ""},
                                        {29000, 1240000000, ""},
                                        {30000, 1260000000, ""}};
    char table[4096];
    char finding[1024];
    shown(m, 4, table, finding);
    assert_non_null(strstr(table, "960.00 Mbit/s  slow\n"));
    assert_non_null(strstr(table, "10.00 Gbit/s\n"));
    assert_null(strstr(table, "late"));
    assert_string_equal(finding,
                        "n1: hint: the bandwidth to n2 is 960.00 Mbit/s, less than half of "
                        "the median, 10.00 Gbit/s");
}

static void a_late_pair_is_marked_and_found(void **state)
{
    (void)state;
    static const struct measured m[] = {
        {300000, 1250000000, ""}, {31000, 1250000000, ""}, {29000, 1240000000, ""}};
    static const struct measured small[] = {
        {60000, 1250000000, ""}, {21000, 1250000000, ""}, {19000, 1240000000, ""}};
    char table[4096];
    char finding[1024];
    shown(m, 3, table, finding);
    assert_non_null(strstr(table, "300.0 us"));
    assert_non_null(strstr(table, "  late\n"));
    assert_string_equal(
        finding,
        "n1: hint: a round trip to n2 takes 300.0 us, more than twice the median, 31.0 us");
    shown(small, 3, table, finding); /* three times as long, but within the noise of a busy node */
    assert_null(strstr(table, "late"));
    assert_string_equal(finding, "");
}

static void a_pair_that_was_not_measured_is_a_problem(void **state)
{
    (void)state;
    static const struct measured m[] = {{0, 0, "cannot connect to 10.0.0.2:4711: No route to host"},
                                        {31000, 1250000000, ""}};
    char table[4096];
    char finding[1024];
    shown(m, 2, table, finding);
    assert_non_null(strstr(table, " -\n"));
    assert_string_equal(finding, "n1: cannot measure the network to n2: cannot connect to "
                                 "10.0.0.2:4711: No route to host");
}

static void two_pairs_have_no_outlier(void **state)
{
    (void)state;
    static const struct measured m[] = {{30000, 120000000, ""}, {31000, 1250000000, ""}};
    char table[4096];
    char finding[1024];
    shown(m, 2, table, finding);
    assert_null(strstr(table, "slow"));
    assert_string_equal(finding, "");
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_client_without_the_token_and_many_silent_ones_keep_nobody_out),
        cmocka_unit_test(a_server_without_a_client_ends),
        cmocka_unit_test(a_server_that_ends_early_fails_the_measurement),
        cmocka_unit_test(a_server_ends_when_its_parent_is_killed),
        cmocka_unit_test(offers_are_parsed),
        cmocka_unit_test(a_slow_pair_is_marked_and_found),
        cmocka_unit_test(a_late_pair_is_marked_and_found),
        cmocka_unit_test(a_pair_that_was_not_measured_is_a_problem),
        cmocka_unit_test(two_pairs_have_no_outlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
