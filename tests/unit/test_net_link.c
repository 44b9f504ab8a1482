/* Links over real sockets of the loopback interface: both ends live in one loop. */
#include "base/io.h"
#include "base/strv.h"
#include "net/hello.h"
#include "net/link.h"
#include "net/listen.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char key_a[] = "DDRUN_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
static char key_b[] = "DDRUN_KEY=ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

enum { LIMIT_MS = 20000, HOSTS_MAX = 4 };

enum manner { DAEMON, GARBAGE, SILENT, HANGS_UP, HTTP };

/* Something that listens. */
struct host {
    struct world *w;
    enum manner manner;
    const char *job;
    struct net_key key;
    struct net_key_input in;
    struct link_shared shared;
    uint16_t port;
    int fd;
    struct event *ev;
    struct link_accept *accepts[64];
    struct link *links[64];
    size_t naccepts, nlinks, nrefused;
    int fds[64];
    size_t nfds;
    char why[256];
};

struct world {
    struct event_base *base;
    struct event *limit;
    struct host hosts[HOSTS_MAX];
    size_t nhosts;
    struct dd_log log;
    int log_pipe[2];
    char logged[16384];
    struct link_find *find;
    struct link *found;
    struct net_key_input guest;
    char *env[4];
    /* what the callbacks of links saw */
    size_t frames, bytes, closed;
    bool clean, timed_out;
    unsigned char last[64];
    char why[256];
};

static size_t open_fds(void)
{
    size_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    (void)closedir(d);
    return n;
}

static void on_limit(evutil_socket_t fd, short what, void *arg)
{
    struct world *w = arg;
    (void)fd;
    (void)what;
    w->timed_out = true;
    (void)event_base_loopbreak(w->base);
}

static void on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    struct host *h = arg;
    for (size_t i = 0; i < h->naccepts; i++)
        if (h->accepts[i] == a)
            h->accepts[i] = NULL;
    link_accept_free(a);
    if (l != NULL) {
        h->links[h->nlinks++] = l;
        return;
    }
    h->nrefused++;
    (void)snprintf(h->why, sizeof(h->why), "%s", why);
}

static void on_connection(evutil_socket_t fd, short what, void *arg)
{
    struct host *h = arg;
    (void)what;
    int c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (c < 0)
        return;
    if (h->naccepts == 64 || h->nfds == 64) {
        (void)close(c);
        return;
    }
    if (h->manner == DAEMON) {
        const struct link_accept_cfg cfg = {.job_id = h->job,
                                            .key = &h->key,
                                            .key_in = &h->in,
                                            .log = &h->w->log,
                                            .timeout_ms = 10000,
                                            .shared = &h->shared};
        assert_int_equal(link_accept_start(&h->accepts[h->naccepts++], h->w->base, c, &cfg,
                                           on_accepted, h, NULL),
                         0);
        return;
    }
    if (h->manner == HANGS_UP) {
        (void)close(c);
        return;
    }
    if (h->manner == GARBAGE)
        (void)!write(c, "SSH-2.0-OpenSSH_9.2\r\n", 21);
    if (h->manner == HTTP)
        (void)!write(c,
                     "\xdd"
                     "dr\x01\xff\xff",
                     6);
    h->fds[h->nfds++] = c;
}

static struct host *add_host(struct world *w, const char *addr, uint16_t port, enum manner manner,
                             const char *job, char *const *env)
{
    struct host *h = &w->hosts[w->nhosts++];
    struct dd_err err = {0};
    *h = (struct host){.w = w, .manner = manner, .job = job};
    h->in = (struct net_key_input){.env = env, .job_id = job, .insecure = env == NULL};
    if (manner == DAEMON)
        assert_int_equal(net_key_host(&h->key, &h->in, &err), 0);
    h->fd = net_listen(addr, &port, 1, &h->port, &err);
    assert_true(h->fd >= 0);
    h->ev = event_new(w->base, h->fd, EV_READ | EV_PERSIST, on_connection, h);
    assert_int_equal(event_add(h->ev, NULL), 0);
    return h;
}

static void close_host(struct host *h)
{
    event_free(h->ev);
    (void)close(h->fd);
    for (size_t i = 0; i < h->naccepts; i++)
        link_accept_free(h->accepts[i]);
    for (size_t i = 0; i < h->nlinks; i++)
        link_free(h->links[i]);
    for (size_t i = 0; i < h->nfds; i++)
        (void)close(h->fds[i]);
    link_shared_done(&h->shared);
    h->ev = NULL;
}

struct fixture {
    struct world w;
    size_t fds;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    (void)signal(SIGPIPE, SIG_IGN);
    f->fds = open_fds();
    struct world *w = &f->w;
    w->base = event_base_new();
    assert_int_equal(pipe2(w->log_pipe, O_CLOEXEC | O_NONBLOCK), 0);
    w->log = (struct dd_log){.level = DD_LOG_INFO, .fd = w->log_pipe[1], .who = "test"};
    w->limit = evtimer_new(w->base, on_limit, w);
    const struct timeval tv = {LIMIT_MS / 1000, 0};
    evtimer_add(w->limit, &tv);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    struct world *w = &f->w;
    link_find_free(w->find);
    link_free(w->found);
    for (size_t i = 0; i < w->nhosts; i++)
        if (w->hosts[i].ev != NULL)
            close_host(&w->hosts[i]);
    event_free(w->limit);
    event_base_free(w->base);
    (void)close(w->log_pipe[0]);
    (void)close(w->log_pipe[1]);
    assert_int_equal(open_fds(), f->fds); /* nothing is left open */
    free(f);
    return 0;
}

static const char *logged(struct world *w)
{
    size_t len = strlen(w->logged);
    ssize_t n = read(w->log_pipe[0], w->logged + len, sizeof(w->logged) - len - 1);
    w->logged[len + (n > 0 ? (size_t)n : 0)] = '\0';
    return w->logged;
}

static void on_found(void *arg, struct link *l)
{
    struct world *w = arg;
    w->found = l;
}

/* guest_env NULL: --insecure. */
static void find(struct world *w, const char *host, const uint16_t *ports, size_t n,
                 char *guest_env)
{
    struct dd_err err = {0};
    w->env[0] = guest_env;
    w->guest =
        (struct net_key_input){.env = w->env, .job_id = "slurm-1.0", .insecure = guest_env == NULL};
    const struct link_find_cfg cfg = {.job_id = "slurm-1.0",
                                      .node = "node3",
                                      .host = host,
                                      .host_is_me = true,
                                      .ports = ports,
                                      .nports = n,
                                      .key_in = &w->guest,
                                      .log = &w->log,
                                      .attempt_ms = 1000};
    assert_int_equal(link_find_start(&w->find, w->base, &cfg, on_found, w, &err), 0);
}

static void run_until(struct world *w, bool (*is_done)(struct world *))
{
    while (!w->timed_out && !is_done(w))
        (void)event_base_loop(w->base, EVLOOP_ONCE);
    if (w->timed_out && w->find != NULL)
        print_message("status: %s\nlog: %s\n", link_find_status(w->find), logged(w));
    assert_false(w->timed_out);
}

static bool is_linked(struct world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->nhosts; i++)
        n += w->hosts[i].nlinks;
    return w->found != NULL && n > 0;
}

static bool status_has(struct world *w, const char *text)
{
    assert_null(w->found);
    return strstr(link_find_status(w->find), text) != NULL;
}

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    struct world *w = arg;
    (void)l;
    w->frames++;
    w->bytes += f->len;
    memcpy(w->last, f->data, f->len < sizeof(w->last) ? f->len : sizeof(w->last));
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    struct world *w = arg;
    (void)l;
    w->closed++;
    w->clean = clean;
    (void)snprintf(w->why, sizeof(w->why), "%s", why);
}

static struct link_cb callbacks(struct world *w)
{
    return (struct link_cb){.on_frame = on_frame, .on_close = on_close, .arg = w};
}

/* Starts a daemon with `host_env` and a guest with `guest_env` and waits for the link. */
static struct host *link_up(struct world *w, char *host_env, char *guest_env)
{
    char *env[] = {host_env, NULL};
    struct host *h =
        add_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", host_env != NULL ? env : NULL);
    find(w, "127.0.0.1", &h->port, 1, guest_env);
    run_until(w, is_linked);
    const struct link_cb cb = callbacks(w);
    link_set_cb(w->found, &cb);
    link_set_cb(h->links[0], &cb);
    return h;
}

static bool has_frame(struct world *w)
{
    return w->frames > 0;
}

static bool has_closed(struct world *w)
{
    return w->closed > 0;
}

static void link_carries_frames_both_ways_when_keys_agree(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    struct host *h = link_up(w, key_a, key_a);
    assert_string_equal(link_node(h->links[0]), "node3");
    assert_int_equal(net_addr_port(link_peer(w->found)), h->port);
    assert_int_equal(net_addr_port(link_local(w->found)), net_addr_port(link_peer(h->links[0])));
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "up", 2), 0);
    run_until(w, has_frame);
    assert_memory_equal(w->last, "up", 2);
    w->frames = 0;
    assert_int_equal(link_send(h->links[0], FRAME_OUTPUT, "down", 4), 0);
    run_until(w, has_frame);
    assert_memory_equal(w->last, "down", 4);
}

static void link_is_plain_when_both_sides_are_insecure(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    (void)link_up(w, NULL, NULL);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "up", 2), 0);
    run_until(w, has_frame);
}

static bool says_keys_differ(struct world *w)
{
    return status_has(w, "is this job's but our keys differ (ours is from DDRUN_KEY)") &&
           w->hosts[0].nrefused >= 2;
}

static void wrong_key_is_refused_told_once_and_tried_again(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    char *env[] = {key_a, NULL};
    struct host *h = add_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", env);
    find(w, "127.0.0.1", &h->port, 1, key_b);
    run_until(w, says_keys_differ);
    assert_int_equal(h->nlinks, 0);
    assert_non_null(strstr(logged(w), "test: warning: node 'node3' (127.0.0.1) was refused: "
                                      "its key is not this job's\n"));
    const char *first = strstr(w->logged, "but our keys differ");
    assert_non_null(first);
    assert_null(strstr(first + 1, "but our keys differ"));
}

static bool says_other_job(struct world *w)
{
    return status_has(w, "is the daemon of another job");
}

static void other_job_is_passed_over(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    char *env[] = {key_a, NULL};
    struct host *h = add_host(w, "127.0.0.1", 0, DAEMON, "slurm-2.0", env);
    find(w, "127.0.0.1", &h->port, 1, key_a);
    run_until(w, says_other_job);
    assert_non_null(strstr(link_find_status(w->find), "nothing of this job listens on 127.0.0.1"));
}

static bool says_insecure(struct world *w)
{
    return status_has(w, "--insecure");
}

static void insecure_host_is_refused_by_a_guest_that_was_not_told(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    struct host *h = add_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", NULL);
    find(w, "127.0.0.1", &h->port, 1, key_a);
    run_until(w, says_insecure);
}

static void squatters_are_passed_over_and_the_daemon_is_found(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    char *env[] = {key_a, NULL};
    uint16_t ports[HOSTS_MAX];
    ports[0] = add_host(w, "127.0.0.1", 0, GARBAGE, "", NULL)->port;
    ports[1] = add_host(w, "127.0.0.1", 0, SILENT, "", NULL)->port;
    ports[2] = add_host(w, "127.0.0.1", 0, DAEMON, "slurm-2.0", env)->port;
    ports[3] = add_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", env)->port;
    uint64_t start = dd_now_ns();
    find(w, "127.0.0.1", ports, 4, key_a);
    run_until(w, is_linked);
    assert_int_equal(w->hosts[3].nlinks, 1);
    assert_int_equal(net_addr_port(link_peer(w->found)), ports[3]);
    /* nobody waited for the silent one's second to pass */
    assert_true(dd_now_ns() - start < 900 * DD_NS_PER_MS);
}

static void goodbye_is_clean_and_death_is_not(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    struct host *h = link_up(w, key_a, key_a);
    size_t before = open_fds();
    link_bye(w->found);
    w->found = NULL;
    run_until(w, has_closed);
    assert_true(w->clean);
    link_free(h->links[0]);
    h->nlinks = 0;
    while (!w->timed_out && open_fds() > before - 2) /* both ends go */
        (void)event_base_loop(w->base, EVLOOP_ONCE);
    assert_false(w->timed_out);
}

static void death_without_goodbye_is_a_loss(void **state)
{
    struct world *w = &((struct fixture *)*state)->w;
    struct host *h = link_up(w, key_a, key_a);
    link_free(h->links[0]);
    h->nlinks = 0;
    run_until(w, has_closed);
    assert_false(w->clean);
    assert_string_equal(w->why, "the connection was lost");
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "", 0), -EPIPE);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(link_carries_frames_both_ways_when_keys_agree),
        T(link_is_plain_when_both_sides_are_insecure),
        T(wrong_key_is_refused_told_once_and_tried_again),
        T(other_job_is_passed_over),
        T(insecure_host_is_refused_by_a_guest_that_was_not_told),
        T(squatters_are_passed_over_and_the_daemon_is_found),
        T(goodbye_is_clean_and_death_is_not),
        T(death_without_goodbye_is_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
