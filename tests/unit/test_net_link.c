/* Links and their handshakes at the daemon, over sockets of the loopback interface. */
#include "config.h"

#include "base/io.h"
#include "clock_world.h"
#include "net_munged.h"
#include "net_world.h"

#include <errno.h>
#include <event2/buffer.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

/* ---- frames ---- */

static void link_carries_frames_both_ways_when_keys_agree(void **state)
{
    struct world *w = *state;
    struct host *h = world_link_up(w, key_a, key_a);
    assert_string_equal(link_node(h->links[0]), "node3");
    assert_int_equal(net_addr_port(link_peer(w->found)), h->port);
    assert_int_equal(net_addr_port(link_local(w->found)), net_addr_port(link_peer(h->links[0])));
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "up", 2), 0);
    world_run_until(w, has_frame);
    assert_memory_equal(w->last, "up", 2);
    w->frames = 0;
    assert_int_equal(link_send(h->links[0], FRAME_OUTPUT, "down", 4), 0);
    world_run_until(w, has_frame);
    assert_memory_equal(w->last, "down", 4);
}

static void link_is_plain_when_both_sides_are_insecure(void **state)
{
    struct world *w = *state;
    (void)world_link_up(w, NULL, NULL);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "up", 2), 0);
    world_run_until(w, has_frame);
    assert_memory_equal(w->last, "up", 2);
}

static void link_of_a_socketpair_needs_no_key(void **state)
{
    struct world *w = *state;
    const struct link_cb cb = world_callbacks(w);
    struct link *other;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(link_new_trusted(&w->found, w->base, fds[0], &cb, NULL), 0);
    assert_int_equal(link_new_trusted(&other, w->base, fds[1], &cb, NULL), 0);
    assert_int_equal(link_peer(w->found)->len, 0);
    assert_int_equal(link_local(w->found)->len, 0);
    assert_string_equal(link_node(w->found), "");
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "up", 2), 0);
    world_run_until(w, has_frame);
    link_free(other);
    world_run_until(w, has_closed);
    assert_false(w->clean);
}

static void silent_peer_is_lost_later_where_more_patience_is_set(void **state)
{
    struct world *w = *state;
    struct world patient = {.base = w->base};
    const struct link_cb cb = world_callbacks(w);
    const struct link_cb later = world_callbacks(&patient);
    int fds[2], others[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, others), 0);
    assert_int_equal(link_new_trusted(&w->found, w->base, fds[0], &cb, NULL), 0);
    assert_int_equal(link_new_trusted(&patient.found, w->base, others[0], &later, NULL), 0);
    assert_int_equal(link_set_heartbeat(patient.found, 30), 0);
    assert_int_equal(link_set_heartbeat(w->found, 30), 0);
    link_set_patience(patient.found, 3600 * 1000);
    world_run_until(w, has_closed);
    assert_false(has_closed(&patient));
    link_free(patient.found);
    close(fds[1]);
    close(others[1]);
}

enum { MANY = 24 };

static bool has_many(struct world *w)
{
    return w->frames == MANY;
}

static void send_frames(struct link *l, size_t count)
{
    static unsigned char data[LINK_FRAME_MAX];
    for (size_t i = 0; i < count; i++) {
        memset(data, (int)i, sizeof(data));
        size_t n = i % 3 == 0 ? sizeof(data) : i % 3 == 1 ? 0 : 70000 + i;
        assert_int_equal(link_send(l, FRAME_OUTPUT, data, n), 0);
    }
}

static void send_many(struct link *l)
{
    send_frames(l, MANY);
}

static void link_carries_the_longest_frames_whole(void **state)
{
    struct world *w = *state;
    char *const env[] = {key_a, NULL}; /* TLS, plain */
    for (size_t i = 0; i < 2; i++) {
        struct host *h = world_link_up(w, env[i], env[i]);
        struct link *ends[] = {w->found, h->links[0]};
        for (size_t e = 0; e < 2; e++) {
            w->frames = w->bytes = 0;
            send_many(ends[e]);
            world_run_until(w, has_many);
            assert_int_equal(w->wrong_bytes, 0);
            assert_true(w->bytes > 8 * (size_t)LINK_FRAME_MAX);
        }
        world_close_host(h);
        link_find_free(w->find);
        link_free(w->found);
        w->found = NULL;
        w->find = NULL;
    }
}

/* Return 5 frames; 4 of them are longer than a TLS record. */
static struct link_frames *some_frames(void)
{
    static unsigned char data[70000];
    struct link_frames *f = link_frames_new();
    for (size_t i = 0; i < 5; i++) {
        memset(data, (int)i, sizeof(data));
        assert_int_equal(link_frames_add(f, FRAME_EXCHANGE, data, i == 2 ? 0 : sizeof(data)), 0);
    }
    return f;
}

static bool has_five(struct world *w)
{
    return w->frames == 5;
}

static void frames_are_shared_by_links(void **state)
{
    struct world *w = *state;
    char *const env[] = {key_a, NULL}; /* TLS, plain */
    for (size_t i = 0; i < 2; i++) {
        struct host *h = world_link_up(w, env[i], env[i]);
        struct link_frames *f = some_frames();
        w->bytes = 0;
        struct link *ends[] = {w->found, h->links[0]};
        for (size_t e = 0; e < 2; e++) {
            w->frames = 0;
            assert_int_equal(link_send_frames(ends[e], f), 0);
            world_run_until(w, has_five);
        }
        link_frames_free(f);
        assert_int_equal(w->bytes, 8 * 70000);
        assert_int_equal(w->wrong_bytes, 0);
        f = some_frames();
        assert_int_equal(link_send_frames(w->found, f), 0);
        world_close_host(h);
        link_free(w->found); /* all frames are still unwritten */
        assert_int_equal(link_frames_size(f), 5 * FRAME_HEADER + 4 * 70000);
        link_frames_free(f);
        link_find_free(w->find);
        w->found = NULL;
        w->find = NULL;
    }
}

static void shared_frames_have_the_same_limits(void **state)
{
    struct world *w = *state;
    struct link_frames *f = some_frames();
    (void)world_link_up(w, key_a, key_a);
    link_set_max(w->found, 69999);
    assert_int_equal(link_send_frames(w->found, f), -EMSGSIZE);
    link_set_max(w->found, 70000);
    int rc = 0;
    size_t sent = 0;
    for (; rc == 0 && sent < 200; sent++)
        rc = link_send_frames(w->found, f);
    assert_int_equal(rc, -ENOBUFS);
    assert_true(sent > 100);
    link_fail(w->found, "plan", rc);
    assert_int_equal(link_send_frames(w->found, f), -EPIPE);
    link_frames_free(f);
    world_run_until(w, has_closed);
}

static void frame_beyond_the_limit_is_not_sent_and_not_taken(void **state)
{
    struct world *w = *state;
    static char big[LINK_FRAME_MAX + 1];
    struct host *h = world_link_up(w, key_a, key_a);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, big, sizeof(big)), -EMSGSIZE);
    link_set_max(h->links[0], 1000);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, big, 1000), 0);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, big, 1001), 0);
    world_run_until(w, has_closed);
    assert_int_equal(w->frames, 1);
    assert_false(w->clean);
    assert_string_equal(w->why, "it sent a frame of more than 1000 bytes");
}

static void sender_is_told_when_the_peer_does_not_read(void **state)
{
    struct world *w = *state;
    static char big[LINK_FRAME_MAX];
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    world_find(w, "127.0.0.1", &h->port, 1, key_a);
    world_run_until(w, is_linked); /* the host's end has no callbacks and does not read */
    int rc = 0;
    size_t sent = 0;
    for (; rc == 0 && sent < 200; sent++) {
        rc = link_send(w->found, FRAME_CONTROL, big, sizeof(big));
        (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    }
    assert_int_equal(rc, -ENOBUFS);
    assert_true(sent > 30);
}

static void link_of_a_lost_message_is_closed_with_the_reason(void **state)
{
    struct world *w = *state;
    static char big[LINK_FRAME_MAX];
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    const struct link_cb cb = world_callbacks(w);
    world_find(w, "127.0.0.1", &h->port, 1, key_a);
    world_run_until(w, is_linked); /* the host's end has no callbacks and does not read */
    link_set_cb(w->found, &cb);
    int rc = 0;
    while (rc == 0)
        rc = link_send(w->found, FRAME_EXCHANGE, big, sizeof(big));
    assert_int_equal(rc, -ENOBUFS);
    size_t bulk = link_queued(w->found);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, big, sizeof(big)),
                     0); /* control frames have room behind bulk data */
    assert_true(link_queued(w->found) > bulk);
    while (rc != 0)
        rc = link_send(w->found, FRAME_CONTROL, big, sizeof(big)) == 0;
    link_fail(w->found, "stop", -ENOBUFS);
    link_fail(w->found, "plan", -EMSGSIZE); /* the first reason counts */
    assert_int_equal(w->closed, 0);         /* on_close is called from the loop */
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "", 0), -EPIPE);
    world_run_until(w, has_closed);
    assert_false(w->clean);
    assert_string_equal(w->why, "it does not read: 'stop' does not fit into the queue of 32 MiB");
}

static void nothing_is_taken_from_a_link_that_has_lost_a_message(void **state)
{
    struct world *w = *state;
    struct host *h = world_link_up(w, key_a, key_a);
    assert_int_equal(link_send(h->links[0], FRAME_CONTROL, "down", 4), 0);
    link_fail(w->found, "join", -EMSGSIZE);
    world_run_until(w, has_closed);
    assert_int_equal(w->frames, 0);
    assert_string_equal(w->why, "cannot send 'join' to it: the message is too long");
    link_fail(h->links[0], "plan", -ENOMEM);
    link_free(h->links[0]); /* before the loop calls on_close */
    h->nlinks = 0;
    (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_int_equal(w->closed, 1);
}

/* ---- ends ---- */

enum { BYE_MS = 1000 };

static void run_until_fds(struct world *w, size_t n)
{
    while (!w->timed_out && open_fds() > n)
        (void)event_base_loop(w->base, EVLOOP_ONCE);
    assert_false(w->timed_out);
}

static void goodbye_is_clean_and_comes_after_all_that_was_sent(void **state)
{
    struct world *w = *state;
    struct host *h = world_link_up(w, key_a, key_a);
    size_t before = open_fds();
    send_frames(w->found, 3); /* few: a busy machine must send them within the 1 s of link_bye() */
    assert_int_equal(link_send(h->links[0], FRAME_CONTROL, "unread", 6), 0);
    link_bye(w->found);
    w->found = NULL;
    w->free_in_close = true;
    world_run_until(w, has_closed);
    h->nlinks = 0;
    assert_true(w->clean);
    assert_int_equal(w->frames, 3);
    run_until_fds(w, before - 2);
}

static void goodbye_does_not_wait_for_a_peer_that_does_not_read(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    world_find(w, "127.0.0.1", &h->port, 1, key_a);
    world_run_until(w, is_linked);
    size_t before = open_fds();
    for (int i = 0; i < 3; i++)
        send_many(w->found);
    link_bye(w->found);
    w->found = NULL;
    (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_int_equal(open_fds(), before); /* still sending */
    clock_skip(BYE_MS);
    run_until_fds(w, before - 1);
}

static void death_without_goodbye_is_a_loss(void **state)
{
    struct world *w = *state;
    char *const env[] = {key_a, NULL};
    static const char *const why[] = {"the connection was lost",
                                      "it closed the connection without BYE"};
    for (size_t i = 0; i < 2; i++) {
        struct host *h = world_link_up(w, env[i], env[i]);
        w->closed = 0;
        world_close_host(h);
        world_run_until(w, has_closed);
        assert_false(w->clean);
        assert_string_equal(w->why, why[i]);
        assert_int_equal(link_send(w->found, FRAME_CONTROL, "", 0), -EPIPE);
        assert_int_equal(w->closed, 1);
        link_bye(w->found); /* on a lost link, it only frees */
        link_find_free(w->find);
        w->found = NULL;
        w->find = NULL;
    }
}

static void link_may_be_freed_inside_its_callbacks(void **state)
{
    struct world *w = *state;
    struct host *h = world_link_up(w, key_a, key_a);
    w->free_in_frame = w->free_in_close = true;
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "one", 3), 0);
    assert_int_equal(link_send(w->found, FRAME_CONTROL, "two", 3), 0);
    world_run_until(w, has_closed); /* the other end notices and closes, too */
    h->nlinks = 0;
    w->found = NULL;
    assert_int_equal(w->frames, 1);
    assert_int_equal(w->closed, 1);
}

/* ---- admission ---- */

static bool has_refused(struct world *w)
{
    return w->hosts[0].nrefused > 0;
}

/* Send bytes as a caller that must be refused; once the reply has this length, the listener's time
 * limit expires. Return the length of the reply in back. */
static size_t refused_after(struct world *w, const void *bytes, size_t n, size_t reply, void *back,
                            size_t size)
{
    struct host *h = &w->hosts[0];
    size_t got = 0;
    const uint64_t start = dd_now_ns();
    int fd = world_connect(h);
    h->nrefused = 0;
    if (n > 0)
        assert_int_equal(write(fd, bytes, n), n);
    while (reply > 0 && !w->timed_out &&
           recv(fd, back, size, MSG_DONTWAIT | MSG_PEEK) < (ssize_t)reply)
        (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    if (reply > 0) /* not much later than at the limit: the listener forgives that */
        clock_skip(h->timeout_ms - (unsigned)((dd_now_ns() - start) / DD_NS_PER_MS));
    world_run_until(w, has_refused);
    for (ssize_t r; (r = read(fd, (char *)back + got, size - got)) > 0;)
        got += (size_t)r;
    (void)close(fd);
    assert_int_equal(h->nlinks, 0);
    return got;
}

static size_t refused(struct world *w, const void *bytes, size_t n, void *back, size_t size)
{
    return refused_after(w, bytes, n, 0, back, size);
}

static void caller_with_garbage_is_sent_away(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *bytes;
        size_t n;
        int reply; /* status byte, -1: none */
        const char *why;
    } rows[] = {
        {"GET / HTTP/1.0\r\n\r\n", 18, -1, "its data is not a hello message"},
        {"\xdd\x64r\x01\xff\xff", 6, -1, "its data is not a hello message"},
        {"\xdd\x64r\x01\x00\x00", 6, -1, "its data is not a hello message"},
        {"\xdd\x64r\x02", 4, HELLO_BAD_VERSION,
         "it uses protocol version 2, but ddrun " PACKAGE_VERSION " here uses 1"},
        {"\xdd\x64r\x01\x00\x0cslurm-2.0\0n", 18, HELLO_OTHER_JOB, "it belongs to another job"},
    };
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned char back[100];
        size_t n = refused(w, rows[i].bytes, rows[i].n, back, sizeof(back));
        assert_string_equal(h->why, rows[i].why);
        assert_int_equal(n, rows[i].reply < 0 ? 0 : 9);
        if (n > 0)
            assert_int_equal(back[6], rows[i].reply);
    }
}

static void silent_caller_is_sent_away_in_time(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    unsigned char back[100];
    h->timeout_ms = 100;
    assert_int_equal(refused(w, "", 0, back, sizeof(back)), 0);
    assert_string_equal(h->why, "its handshake timed out");
    /* a correct hello without a TLS handshake */
    h->timeout_ms = 30000;
    static const char hello[] = "\xdd\x64r\x01\x00\x0cslurm-1.0\0n";
    assert_int_equal(refused_after(w, hello, sizeof(hello), 9, back, sizeof(back)), 9);
    assert_string_equal(h->why, "its handshake timed out");
}

static void hello_may_come_byte_by_byte(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", NULL);
    static const char hello[] = "\xdd\x64r\x01\x00\x0cslurm-1.0\0n";
    int fd = world_connect(h);
    for (size_t i = 0; i < sizeof(hello); i++) {
        assert_int_equal(h->nlinks, 0);
        assert_int_equal(write(fd, hello + i, 1), 1);
        (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    }
    while (!w->timed_out && h->nlinks == 0)
        (void)event_base_loop(w->base, EVLOOP_ONCE);
    assert_int_equal(h->nlinks, 1);
    assert_string_equal(link_node(h->links[0]), "n");
    (void)close(fd);
}

static void caller_without_the_key_is_refused(void **state)
{
    struct world *w = *state;
    struct host *h = world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    static const char hello[] = "\xdd\x64r\x01\x00\x0cslurm-1.0\0n";
    unsigned char back[9];
    int fd = world_connect(h);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    (void)SSL_set_fd(ssl, fd);
    assert_int_equal(write(fd, hello, sizeof(hello)), sizeof(hello));
    while (!w->timed_out && recv(fd, back, sizeof(back), MSG_DONTWAIT | MSG_PEEK) < 9)
        (void)event_base_loop(w->base, EVLOOP_NONBLOCK);
    assert_int_equal(read(fd, back, 9), 9);
    assert_int_equal(back[6], HELLO_OK);
    assert_int_equal(evutil_make_socket_nonblocking(fd), 0);
    assert_int_equal(SSL_connect(ssl), -1); /* sends a ClientHello without a PSK */
    world_run_until(w, has_refused);
    assert_string_equal(h->why, "it has no key of this job");
    assert_int_equal(h->nlinks, 0);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    (void)close(fd);
}

static void names_in_the_log_are_escaped_and_lines_are_limited(void **state)
{
    struct world *w = *state;
    (void)world_host(w, "127.0.0.1", 0, DAEMON, "slurm-1.0", key_a);
    static const char hello[] = "\xdd\x64r\x01\x00\x10slurm-2.0\0a\n\x1b[b";
    unsigned char back[100];
    for (int i = 0; i < 30; i++)
        (void)refused(w, hello, sizeof(hello), back, sizeof(back));
    assert_non_null(strstr(
        world_logged(w),
        "test: info: refused node 'a\\x0a\\x1b[b' (127.0.0.1): it belongs to another job\n"));
    assert_int_equal(world_count_logged(w, "\n"), 10);
}

/* ---- other sources of keys ---- */

static void link_up_with(struct world *w, const struct net_key_input *in)
{
    struct host *h = world_host_with(w, in);
    w->guest = *in;
    w->cfg.host = "127.0.0.1";
    w->cfg.ports = &h->port;
    w->cfg.nports = 1;
    world_find(w, "127.0.0.1", &h->port, 1, in->env[0]);
    world_run_until(w, is_linked);
    net_key_cleanup(&h->key, in);
}

static void link_comes_up_with_a_munge_credential(void **state)
{
    struct world *w = *state;
    struct munged m = {.pid = 0};
    const char *why = HAVE_MUNGE ? munged_start(&m) : "built without MUNGE";
    if (why[0] != '\0') {
        munged_stop(&m);
        print_message("skipped: %s\n", why);
        skip();
    }
    char none[] = "NOTHING=1";
    char *env[] = {none, NULL};
    const struct net_key_input in = {.env = env, .job_id = "slurm-1.0", .munge_socket = m.socket};
    link_up_with(w, &in);
    assert_int_equal(w->hosts[0].key.method, NET_KEY_MUNGE);
    munged_stop(&m);
}

static void link_comes_up_with_a_key_in_the_home_directory(void **state)
{
    struct world *w = *state;
    char dir[64] = "/tmp/ddrun-link-XXXXXX";
    char home[80];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(home, sizeof(home), "HOME=%s", dir);
    char *env[] = {home, NULL};
    const struct net_key_input in = {
        .env = env, .job_id = "slurm-1.0", .munge_socket = "/nonexistent/munge"};
    link_up_with(w, &in);
    assert_int_equal(w->hosts[0].key.method, NET_KEY_HOME);
    (void)snprintf(home, sizeof(home), "%s/.ddrun", dir);
    assert_int_equal(rmdir(home), 0); /* the key file has been removed */
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(link_carries_frames_both_ways_when_keys_agree),
        WORLD_TEST(link_is_plain_when_both_sides_are_insecure),
        WORLD_TEST(link_of_a_socketpair_needs_no_key),
        WORLD_TEST(silent_peer_is_lost_later_where_more_patience_is_set),
        WORLD_TEST(link_carries_the_longest_frames_whole),
        WORLD_TEST(frames_are_shared_by_links),
        WORLD_TEST(shared_frames_have_the_same_limits),
        WORLD_TEST(frame_beyond_the_limit_is_not_sent_and_not_taken),
        WORLD_TEST(sender_is_told_when_the_peer_does_not_read),
        WORLD_TEST(link_of_a_lost_message_is_closed_with_the_reason),
        WORLD_TEST(nothing_is_taken_from_a_link_that_has_lost_a_message),
        WORLD_TEST(goodbye_is_clean_and_comes_after_all_that_was_sent),
        WORLD_TEST(goodbye_does_not_wait_for_a_peer_that_does_not_read),
        WORLD_TEST(death_without_goodbye_is_a_loss),
        WORLD_TEST(link_may_be_freed_inside_its_callbacks),
        WORLD_TEST(caller_with_garbage_is_sent_away),
        WORLD_TEST(silent_caller_is_sent_away_in_time),
        WORLD_TEST(hello_may_come_byte_by_byte),
        WORLD_TEST(caller_without_the_key_is_refused),
        WORLD_TEST(names_in_the_log_are_escaped_and_lines_are_limited),
        WORLD_TEST(link_comes_up_with_a_munge_credential),
        WORLD_TEST(link_comes_up_with_a_key_in_the_home_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
