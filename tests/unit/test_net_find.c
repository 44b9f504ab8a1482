/* A caller's search among listeners that are daemons, silent, false or absent. */
#include "config.h"

#include "base/io.h"
#include "clock_world.h"
#include "net/listen.h"
#include "net_munged.h"
#include "net_world.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Label longer than 63 bytes: the resolver rejects it without a query. */
#define NOWHERE "no-such-node-0123456789012345678901234567890123456789012345678901234567890"

static void search_refuses_what_cannot_be(void **state)
{
    struct world *w = *state;
    static const uint16_t ports[65] = {1};
    char longest[300];
    memset(longest, 'j', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    const struct {
        const char *job, *node, *bind;
        size_t nports;
    } rows[] = {
        {"", "n", NULL, 1},  {longest, "n", NULL, 1}, {"j", longest, NULL, 1},
        {"j", "n", NULL, 0}, {"j", "n", NULL, 65},    {"j", "n", "node1", 1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct link_find_cfg cfg = {.job_id = rows[i].job,
                                          .node = rows[i].node,
                                          .host = "127.0.0.1",
                                          .ports = ports,
                                          .nports = rows[i].nports,
                                          .bind_addr = rows[i].bind,
                                          .key_in = &w->guest};
        struct dd_err err = {.text = ""};
        assert_int_equal(link_find_start(&w->find, w->base, &cfg, NULL, NULL, &err), -EINVAL);
        assert_true(err.text[0] != '\0');
    }
}

/* ---- one listener, and its status line ---- */

static bool says_expected(struct world *w)
{
    return status_has(w, w->why);
}

static void status_tells_what_stands_in_the_way(void **state)
{
    struct world *w = *state;
    static const struct {
        enum manner manner;
        const char *job;
        char *host_env, *guest_env;
        const char *says;
    } rows[] = {
        {GARBAGE, "", NULL, key_a, "is another program"},
        {SILENT, "", NULL, key_a, "accepted the connection but did not answer"},
        {HANGS_UP, "", NULL, key_a, "closed the connection without an answer"},
        {NEWER, "", NULL, key_a,
         "uses protocol version 2, but ddrun " PACKAGE_VERSION
         " here uses 1; all nodes need the same version"},
        {STALLS, "", NULL, key_a, "did not finish the TLS handshake in time"},
        {BABBLES, "", NULL, key_a, "failed the TLS handshake: TLS: "},
        {CERTIFICATE, "", NULL, key_a, "is of this job, but the keys differ"},
        {DAEMON, "slurm-2.0", key_a, key_a, "is the daemon of another job"},
        {DAEMON, "slurm-1.0", key_a, key_b,
         "is of this job, but the keys differ (key source here: DDRUN_KEY)"},
        {DAEMON, "slurm-1.0", NULL, key_a,
         "is of this job, but this node has no key in common with it: the leader runs with --insecure, but this node does not"},
        {DAEMON, "slurm-1.0", key_a, NULL,
         "is of this job, but this node has no key in common with it: the leader uses a key file, "},
        {OFFERS, "", NULL, key_a,
         "is of this job, but this node has no key in common with it: the leader's key comes from MUNGE, and this node uses its own (DDRUN_KEY)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct host *h = world_host(w, "127.0.0.1", 0, rows[i].manner, rows[i].job,
                                    rows[i].host_env);
        (void)snprintf(w->why, sizeof(w->why), "127.0.0.1:%u %s", h->port, rows[i].says);
        w->cfg.attempt_ms = rows[i].manner == DAEMON ? WORLD_LIMIT_MS : 300;
        world_find(w, "127.0.0.1", &h->port, 1, rows[i].guest_env);
        world_run_until(w, says_expected);
        world_close_host(h);
        link_find_free(w->find);
        w->find = NULL;
        w->nhosts = 0;
    }
}

static bool is_refused_twice(struct world *w)
{
    return w->hosts[0].nrefused >= 2 && status_has(w, "keys differ");
}

static void wrong_key_is_told_once_and_tried_again(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    world_find(w, "127.0.0.1", &h->port, 1, key_b);
    world_run_until(w, is_refused_twice);
    assert_int_equal(world_count_logged(w, "keys differ"), 1);
    assert_true(
        world_count_logged(
            w,
            "test: warning: refused node 'node3' (127.0.0.1): its key is not that of this job\n") >=
        2);
}

#if HAVE_MUNGE

static bool waits_for_munged(struct world *w)
{
    return status_has(w, "munged on this node has not decoded its credential");
}

static bool has_found(struct world *w)
{
    return w->found != NULL;
}

/* The searches that were given up have left threads, which libmunge keeps a while. */
static bool is_single_threaded(struct world *w)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/task");
    (void)w;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n == 1;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
}

/* A job without a shared key: this node must ask munged about each credential. */
static void silent_munged_holds_up_no_other_port(void **state)
{
    struct world *w = *state;
    const struct timeval often = {.tv_usec = 10000};
    char dir[] = "/tmp/ddrun-silent-XXXXXX";
    char path[64], home[64];
    uint16_t ports[2];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/socket", dir);
    (void)snprintf(home, sizeof(home), "HOME=%s", dir);
    const int munged = munged_silent(path);
    ports[0] = world_host(w, "127.0.0.1", 0, OFFERS, "", NULL)->port;
    w->guest.munge_socket = path;
    w->cfg.attempt_ms = 100;
    world_find(w, "127.0.0.1", ports, 1, home);
    world_run_until(w, waits_for_munged);
    const int asked = accept(munged, NULL, NULL);
    assert_true(asked >= 0);
    link_find_free(DD_TAKE(w->find));

    char *env[] = {home, NULL};
    const struct net_key_input in = {
        .env = env, .job_id = "slurm-1.0", .munge_socket = "/nonexistent/socket"};
    struct host *h = world_host_with(w, &in);
    assert_int_equal(h->key.method, NET_KEY_HOME);
    ports[1] = h->port;
    w->cfg.attempt_ms = WORLD_LIMIT_MS;
    world_find(w, "127.0.0.1", ports, 2, home);
    world_run_until(w, has_found);
    net_key_cleanup(&h->key, &in);
    (void)close(asked);
    (void)close(munged);
    (void)unlink(path);
    struct event *tick = event_new(w->base, -1, EV_PERSIST, on_tick, NULL);
    (void)event_add(tick, &often);
    world_run_until(w, is_single_threaded);
    event_free(tick);
    (void)snprintf(path, sizeof(path), "%s/.ddrun", dir);
    (void)rmdir(path);
    (void)rmdir(dir);
}

#endif

/* ---- several listeners ---- */

static void daemon_is_found_among_squatters(void **state)
{
    struct world *w = *state;
    static const struct {
        enum manner manner;
        const char *job;
        char *env;
    } rows[] = {
        {GARBAGE, "", NULL},          {SILENT, "", NULL},           {STALLS, "", NULL},
        {BABBLES, "", NULL},          {CERTIFICATE, "", NULL},      {OFFERS, "", NULL},
        {DAEMON, "slurm-2.0", key_a}, {DAEMON, "slurm-1.0", key_b}, /* with another key */
        {DAEMON, "slurm-1.0", NULL},                                /* without a key */
    };
    for (size_t i = 0; i + 2 < sizeof(rows) / sizeof(rows[0]); i++) {
        uint16_t ports[HOSTS_MAX];
        for (size_t s = 0; s < 3; s++)
            ports[s] = world_host(w, "127.0.0.1", 0, rows[i + s].manner, rows[i + s].job,
                                  rows[i + s].env)
                           ->port;
        struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
        ports[3] = h->port;
        uint64_t start = dd_now_ns();
        world_find(w, "127.0.0.1", ports, 4, key_a);
        world_run_until(w, is_linked);
        assert_int_equal(h->nlinks, 1);
        assert_int_equal(net_addr_port(link_peer(w->found)), ports[3]);
        /* the caller did not wait for the silent ones, which had 60 s */
        assert_true(dd_now_ns() - start < 50 * DD_NS_PER_S);
        for (size_t s = 0; s < 4; s++)
            world_close_host(&w->hosts[s]);
        link_find_free(w->find);
        link_free(w->found);
        w->find = NULL;
        w->found = NULL;
        w->nhosts = 0;
    }
}

static bool says_all_ports(struct world *w)
{
    return strcmp(link_find_status(w->find), w->why) == 0;
}

static void daemon_that_starts_later_is_found(void **state)
{
    struct world *w = *state;
    uint16_t ports[3];
    for (size_t i = 0; i < 3; i++) {
        struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
        ports[i] = h->port;
        world_close_host(h);
    }
    w->nhosts = 0;
    (void)snprintf(w->why, sizeof(w->why),
                   "no daemon of this job at 127.0.0.1 (127.0.0.1) ports %u, %u, %u", ports[0],
                   ports[1], ports[2]);
    world_find(w, "127.0.0.1", ports, 3, key_a);
    world_run_until(w, says_all_ports);
    (void)world_host(w, "127.0.0.1", ports[1], DAEMON, "slurm-1.0", key_a);
    world_run_until(w, is_linked);
    assert_int_equal(net_addr_port(link_peer(w->found)), ports[1]);
}

static bool has_called(struct world *w)
{
    return w->hosts[0].nlate == 1;
}

/* A new attempt would wait behind the first one. */
static void attempt_at_a_daemon_that_answers_late_is_kept(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    h->delay_ms = 20000;
    w->cfg.attempt_ms = 10000;
    world_find(w, "127.0.0.1", &h->port, 1, key_a);
    world_run_until(w, has_called);
    for (int i = 0; i < 2; i++) {
        clock_skip(10000);
        (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    }
    world_run_until(w, is_linked);
    assert_int_equal(h->naccepts, 1);
    assert_int_equal(h->nlate, 0);
}

static bool is_waiting(struct world *w)
{
    return (int)link_find_listener(w->find) == w->expected;
}

static void search_tells_who_keeps_it_waiting(void **state)
{
    struct world *w = *state;
    static const struct {
        enum manner manner;
        enum link_listener listener;
        bool waits;
    } rows[] = {
        {SILENT, LINK_LISTENER_SILENT, true},
        {STALLS, LINK_LISTENER_BUSY, true},
        {GARBAGE, LINK_LISTENER_FOREIGN, false},
        {NEWER, LINK_LISTENER_OURS, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct host *h = world_host(w, "127.0.0.1", 0, rows[i].manner, "", NULL);
        w->expected = (int)rows[i].listener;
        w->cfg.attempt_ms = 100;
        world_find(w, "127.0.0.1", &h->port, 1, key_a);
        world_run_until(w, is_waiting);
        assert_int_equal(link_find_waits_for_daemon(w->find), rows[i].waits);
        world_close_host(h);
        link_find_free(DD_TAKE(w->find));
        w->nhosts = 0;
    }
}

static bool looked_up(struct world *w)
{
    return !status_has(w, "resolving ");
}

/* The script `scontrol` of this test returns a loopback address for every node. */
static void loopback_is_no_address_of_another_host(void **state)
{
    struct world *w = *state;
    static const char script[] = "#!/bin/sh\necho NodeName=$4 NodeAddr=127.0.0.1 X=1\n";
    char dir[64] = "/tmp/ddrun-find-XXXXXX";
    char file[80];
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    DD_AUTO(free) char *path = strdup(getenv("PATH"));
    assert_non_null(mkdtemp(dir));
    (void)snprintf(file, sizeof(file), "%s/scontrol", dir);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0700);
    assert_int_equal(dd_write_full(fd, script, sizeof(script) - 1), 0);
    (void)close(fd);
    (void)setenv("PATH", dir, 1);
    w->cfg.try_scontrol = true;
    w->cfg.host_is_me = false;
    world_find(w, NOWHERE, &h->port, 1, key_a);
    world_run_until(w, looked_up);
    assert_true(status_has(w, "loopback address"));
    assert_int_equal(h->naccepts, 0);
    link_find_free(w->find);

    w->cfg.host_is_me = true;
    world_find(w, NOWHERE, &h->port, 1, key_a);
    world_run_until(w, is_linked);
    (void)setenv("PATH", path, 1);
    (void)unlink(file);
    (void)rmdir(dir);
}

static void name_without_an_address_is_told(void **state)
{
    struct world *w = *state;
    static const uint16_t port = 1;
    world_find(w, NOWHERE, &port, 1, key_a);
    world_run_until(w, looked_up);
    assert_true(status_has(w, "found no address of "));
}

/* Return a listener with a full queue: the kernel drops further SYNs, as on a dead network. */
static int dead_end(const char *addr, uint16_t *port, int fill[2])
{
    struct net_addr a;
    *port = 0;
    int fd = net_listen(addr, port, 1, port, NULL);
    assert_true(fd >= 0);
    assert_int_equal(listen(fd, 0), 0);
    assert_int_equal(net_addr_parse(&a, addr, *port), 0);
    for (int i = 0; i < 2; i++) {
        fill[i] = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(fill[i], &a.sa, a.len);
    }
    return fd;
}

static void dead_address_does_not_delay_the_other(void **state)
{
    struct world *w = *state;
    struct net_addr v6;
    int fill[2];
    uint16_t port = 0;
    assert_int_equal(net_addr_parse(&v6, "::1", 0), 0);
    DD_AUTO(fd) int probe = net_listen("::1", &port, 1, &port, NULL);
    if (probe < 0) {
        print_message("skipped: no IPv6 here\n");
        skip();
    }
    int dead = dead_end("::1", &port, fill);
    struct host *h = world_host(w, "127.0.0.1", port, DAEMON, "slurm-1.0", key_a);
    uint64_t start = dd_now_ns();
    world_find(w, "localhost", &h->port, 1, key_a);
    world_run_until(w, is_linked);
    assert_true(dd_now_ns() - start < 50 * DD_NS_PER_S);
    assert_int_equal(link_peer(w->found)->sa.sa_family, AF_INET);
    (void)close(dead);
    (void)close(fill[0]);
    (void)close(fill[1]);
}

static bool no_answer(struct world *w)
{
    return status_has(w, ": no answer");
}

static void silence_of_the_network_is_told(void **state)
{
    struct world *w = *state;
    int fill[2];
    uint16_t port;
    int dead = dead_end("127.0.0.1", &port, fill);
    w->cfg.attempt_ms = 200;
    world_find(w, "127.0.0.1", &port, 1, key_a);
    world_run_until(w, no_answer);
    (void)close(dead);
    (void)close(fill[0]);
    (void)close(fill[1]);
}

static void source_address_is_the_one_that_was_asked_for(void **state)
{
    struct world *w = *state;
    char text[NET_ADDR_TEXT];
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    w->cfg.bind_addr = "127.0.0.9";
    world_find(w, "127.0.0.1", &h->port, 1, key_a);
    world_run_until(w, is_linked);
    assert_string_equal(net_addr_host(link_peer(h->links[0]), text), "127.0.0.9");
    assert_string_equal(net_addr_host(link_local(w->found), text), "127.0.0.9");
}

static void search_may_be_freed_at_any_time(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    for (int turns = 0; turns < 60; turns++) {
        world_find(w, "localhost", &h->port, 1, key_a);
        for (int i = 0; i < turns && w->found == NULL; i++)
            (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
        link_find_free(w->find);
        link_free(w->found);
        w->find = NULL;
        w->found = NULL;
    }
}

/* ---- one probe of many nodes ---- */

enum { ATTEMPT_MS = 30000 };

struct seen {
    struct event_base *base;
    size_t found, expected;
    bool done;
};

static void on_seen(void *arg, struct link *l)
{
    struct seen *s = arg;
    s->found++;
    if (s->found == s->expected)
        clock_skip(ATTEMPT_MS); /* the others do not answer */
    link_free(l);
}

static void on_looked(void *arg)
{
    struct seen *s = arg;
    s->done = true;
    event_base_loopbreak(s->base);
}

static struct seen look_at(struct world *w, char *const *hosts, size_t n, const uint16_t *ports,
                           size_t nports, size_t expected)
{
    struct seen s = {.base = w->base, .expected = expected};
    struct link_probe *k;
    struct link_probe_cfg cfg = {.find = w->cfg,
                                 .hosts = hosts,
                                 .nhosts = n,
                                 .found = on_seen,
                                 .done = on_looked,
                                 .arg = &s};
    w->env[0] = key_a;
    cfg.find.ports = ports;
    cfg.find.nports = nports;
    cfg.find.attempt_ms = ATTEMPT_MS;
    assert_int_equal(link_probe_start(&k, w->base, &cfg, NULL), 0);
    event_base_dispatch(w->base);
    link_probe_free(k);
    (void)event_base_loop(w->base, EVLOOP_NONBLOCK); /* frees what libevent has deferred */
    assert_true(s.done);
    return s;
}

#if HAVE_MUNGE

/* If the probe gave up at the time limit of its attempt, it would report that the job has no
 * daemon. */
static void probe_waits_for_munged(void **state)
{
    struct world *w = *state;
    const struct timeval late = {.tv_usec = 300000};
    char dir[] = "/tmp/ddrun-silent-XXXXXX";
    char path[64], home[64];
    char *hosts[] = {(char[]){"127.0.0.1"}};
    struct seen s = {.base = w->base};
    struct link_probe *k;
    struct link_probe_cfg cfg = {.find = w->cfg,
                                 .hosts = hosts,
                                 .nhosts = 1,
                                 .found = on_seen,
                                 .done = on_looked,
                                 .arg = &s};
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/socket", dir);
    (void)snprintf(home, sizeof(home), "HOME=%s", dir);
    const int munged = munged_silent(path);
    w->env[0] = home;
    w->guest.munge_socket = path;
    cfg.find.ports = &world_host(w, "127.0.0.1", 0, OFFERS, "", NULL)->port;
    cfg.find.nports = 1;
    cfg.find.attempt_ms = 100;
    assert_int_equal(link_probe_start(&k, w->base, &cfg, NULL), 0);
    (void)event_base_loopexit(w->base, &late);
    event_base_dispatch(w->base);
    assert_false(s.done);
    const int asked = accept(munged, NULL, NULL);
    assert_true(asked >= 0);
    (void)close(asked);
    (void)close(munged);
    (void)unlink(path);
    event_base_dispatch(w->base);
    assert_true(s.done);
    link_probe_free(k);
    (void)event_base_loop(w->base, EVLOOP_NONBLOCK); /* frees what libevent has deferred */
    (void)rmdir(dir);
}

#endif

static void look_finds_every_daemon_and_comes_to_an_end(void **state)
{
    struct world *w = *state;
    const uint16_t ports[] = {world_host(w, "127.0.0.3", 0, SILENT, "slurm-1.0", key_a)->port,
                              world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a)->port,
                              world_host(w, "127.0.0.2", 0, DAEMON, "slurm-1.0", key_a)->port,
                              world_host(w, "127.0.0.2", 0, DAEMON, "another", key_a)->port};
    char *hosts[] = {(char[]){"127.0.0.2"}, (char[]){NOWHERE}, (char[]){"127.0.0.9"},
                     (char[]){"127.0.0.3"}, (char[]){"127.0.0.1"}};
    assert_int_equal(look_at(w, hosts, 5, ports, 4, 2).found, 2);
    assert_int_equal(look_at(w, hosts, 0, ports, 4, 0).found, 0);
}

static void look_asks_more_nodes_than_it_asks_at_once(void **state)
{
    struct world *w = *state;
    const uint16_t ports[] = {world_host(w, "127.0.0.100", 0, DAEMON, "slurm-1.0", key_a)->port};
    char names[100][20];
    char *hosts[100];
    for (int i = 0; i < 100; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "127.0.0.%d", i + 1);
        hosts[i] = names[i];
    }
    assert_int_equal(look_at(w, hosts, 100, ports, 1, 0).found, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(look_finds_every_daemon_and_comes_to_an_end),
        WORLD_TEST(look_asks_more_nodes_than_it_asks_at_once),
        WORLD_TEST(search_refuses_what_cannot_be),
        WORLD_TEST(status_tells_what_stands_in_the_way),
        WORLD_TEST(wrong_key_is_told_once_and_tried_again),
        WORLD_TEST(daemon_is_found_among_squatters),
#if HAVE_MUNGE
        WORLD_TEST(silent_munged_holds_up_no_other_port),
        WORLD_TEST(probe_waits_for_munged),
#endif
        WORLD_TEST(daemon_that_starts_later_is_found),
        WORLD_TEST(attempt_at_a_daemon_that_answers_late_is_kept),
        WORLD_TEST(search_tells_who_keeps_it_waiting),
        WORLD_TEST(loopback_is_no_address_of_another_host),
        WORLD_TEST(name_without_an_address_is_told),
        WORLD_TEST(dead_address_does_not_delay_the_other),
        WORLD_TEST(silence_of_the_network_is_told),
        WORLD_TEST(source_address_is_the_one_that_was_asked_for),
        WORLD_TEST(search_may_be_freed_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
