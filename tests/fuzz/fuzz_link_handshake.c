/* link_handshake: both sides of a link, link_attempt and link_accept; the input is the network
 * between them: it delivers bytes in any pieces, changes, drops and injects some, closes either
 * side, and time passes. Frames arrive as they were sent, if at all; there is no link if the keys
 * differ or only one side has a key.
 *
 * The first byte chooses the keys. Then steps of (kind and side, arguments). */
#include "base/cursor.h"
#include "fake_clock.h"
#include "net/link_attempt_inner.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS_MAX = 200, CHUNK = 4096, FRAMES = 3, LIMIT_MS = 10000 };
enum side { CALLER, DAEMON, SIDES };
enum step { PASS, PASS_ALL, CHANGE, DROP, MAKE_UP, CLOSE, SEND, PASS_TIME, STEP_MAX };
enum keys { SAME_KEY, OTHER_KEY, NO_KEY, DAEMON_WITHOUT_KEY, KEYS_MAX };

static const char frame_text[] = "as it was sent";

static struct {
    struct event_base *base;
    struct net_tls *tls;
    struct link_shared shared;
    struct link_attempt *attempt;
    struct link_accept *accept;
    struct link *link[SIDES];
    int fd[SIDES];                   /* the network's end towards that side; -1: closed */
    size_t sent[SIDES], came[SIDES]; /* frames */
    bool with_key, changed[SIDES];   /* changed: bytes to that side */
} world;

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- the two sides ---- */

static void on_frame(void *arg, struct link *l, const struct frame *f)
{
    const size_t side = (size_t)(uintptr_t)arg;
    (void)l;
    if (world.changed[side] && !world.with_key)
        return;
    must(f->type == FRAME_OUTPUT && f->len == sizeof(frame_text) &&
         memcmp(f->data, frame_text, f->len) == 0);
    must(++world.came[side] <= world.sent[1 - side]);
}

static void on_close(void *arg, struct link *l, bool clean, const char *why)
{
    const size_t side = (size_t)(uintptr_t)arg;
    (void)clean;
    must(l == world.link[side] && why[0] != '\0');
    link_free(DD_TAKE(world.link[side]));
}

static void opened(enum side side, struct link *l)
{
    world.link[side] = l;
    link_set_cb(l, &(struct link_cb){
                       .on_frame = on_frame, .on_close = on_close, .arg = (void *)(uintptr_t)side});
}

static void on_tried(void *arg, struct link_attempt *t, enum link_verdict v, struct link *l,
                     const char *why)
{
    (void)arg;
    must(t == world.attempt && (l != NULL) == (v == ATTEMPT_LINK) && (l != NULL || why[0] != '\0'));
    if (l != NULL)
        opened(CALLER, l);
    link_attempt_free(t);
    world.attempt = NULL;
}

static void on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    (void)arg;
    must(a == world.accept && (l == NULL) == (why != NULL));
    if (l != NULL)
        opened(DAEMON, l);
    link_accept_free(a);
    world.accept = NULL;
}

/* Listen on an abstract socket; the kernel chooses the name. */
static int listen_somewhere(struct net_addr *ret)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t len = sizeof(at);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof(at.sun_family)) == 0);
    must(listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    must(len <= sizeof(*ret));
    memcpy(ret, &at, len);
    ret->len = len;
    return fd;
}

static void start_caller(const struct link_find_cfg *find)
{
    struct link_attempt_cfg cfg = {
        .find = find, .tls = &world.tls, .limit_ms = LIMIT_MS, .done = on_tried};
    int fd = listen_somewhere(&cfg.addr);
    must(link_attempt_start(&world.attempt, world.base, &cfg) == 0);
    world.fd[CALLER] = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    must(world.fd[CALLER] >= 0);
    close(fd);
}

static void start_daemon(const struct link_accept_cfg *cfg)
{
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    world.fd[DAEMON] = pair[0];
    must(link_accept_start(&world.accept, world.base, pair[1], cfg,
                           &(struct link_accept_cb){.done = on_accepted}, NULL) == 0);
}

/* ---- the network ---- */

static void give(enum side side, const unsigned char *bytes, size_t n)
{
    if (world.fd[side] >= 0 && n > 0)
        (void)send(world.fd[side], bytes, n, MSG_NOSIGNAL);
}

/* Read at most n bytes that the other side has sent. */
static size_t take(enum side side, unsigned char *bytes, size_t n)
{
    const int from = world.fd[1 - side];
    ssize_t got = from >= 0 ? recv(from, bytes, n < CHUNK ? n : CHUNK, 0) : -1;
    return got > 0 ? (size_t)got : 0;
}

static void disturb(enum side side, size_t n)
{
    world.changed[side] |= n > 0;
}

static void pass_changed(enum side side, struct dd_rd *r)
{
    unsigned char bytes[CHUNK];
    const size_t n = take(side, bytes, CHUNK);
    const size_t at = dd_rd_u8(r);
    const unsigned char by = dd_rd_u8(r);
    if (n > 0 && by != 0) {
        bytes[at % n] ^= by;
        disturb(side, 1);
    }
    give(side, bytes, n);
}

static void make_up(enum side side, struct dd_rd *r)
{
    size_t n = dd_rd_u8(r);
    n = n < dd_rd_left(r) ? n : dd_rd_left(r);
    disturb(side, n);
    give(side, dd_rd_bytes(r, n), n);
}

static void send_frame(enum side to)
{
    struct link *l = world.link[1 - to];
    if (l != NULL && world.sent[1 - to] < FRAMES &&
        link_send(l, FRAME_OUTPUT, frame_text, sizeof(frame_text)) == 0)
        world.sent[1 - to]++;
}

static void close_side(enum side side)
{
    if (world.fd[side] >= 0)
        close(world.fd[side]);
    world.fd[side] = -1;
}

static void step(struct dd_rd *r)
{
    unsigned char bytes[CHUNK];
    const unsigned how = dd_rd_u8(r);
    const enum side side = (enum side)(how % SIDES);
    const enum step what = (enum step)(how / SIDES % STEP_MAX);
    if (what == PASS)
        give(side, bytes, take(side, bytes, dd_rd_u8(r)));
    else if (what == PASS_ALL)
        give(side, bytes, take(side, bytes, CHUNK));
    else if (what == CHANGE)
        pass_changed(side, r);
    else if (what == DROP)
        disturb(side, take(side, bytes, dd_rd_u8(r)));
    else if (what == MAKE_UP)
        make_up(side, r);
    else if (what == CLOSE)
        close_side(side);
    else if (what == SEND)
        send_frame(side);
    else
        fake_clock_pass(100 * (uint64_t)dd_rd_u8(r));
    (void)event_base_loop(world.base, EVLOOP_NONBLOCK);
}

/* ---- one job ---- */

static void run(struct dd_rd *r, enum keys keys)
{
    static char own[] =
        "DDRUN_KEY=2f7c1d9e04b8a35f6611e0c97d4ab852c3a90e5b7714fd286b1f08e4952dca73";
    static char other[] =
        "DDRUN_KEY=c3a90e5b7714fd286b1f08e4952dca732f7c1d9e04b8a35f6611e0c97d4ab852";
    static char *env[][2] = {{own, NULL}, {other, NULL}};
    const bool daemon_has_key = keys == SAME_KEY || keys == OTHER_KEY;
    const struct net_key_input at_daemon = {
        .env = env[0], .job_id = "job.1", .insecure = !daemon_has_key};
    const struct net_key_input at_caller = {
        .env = env[keys == OTHER_KEY], .job_id = "job.1", .insecure = keys == NO_KEY};
    const struct link_find_cfg find = {.job_id = "job.1", .node = "node1", .key_in = &at_caller};
    struct net_key key = {.method = NET_KEY_NONE};
    const struct link_accept_cfg accept = {.job_id = "job.1",
                                           .key = &key,
                                           .key_in = &at_daemon,
                                           .timeout_ms = LIMIT_MS,
                                           .shared = &world.shared};
    world.with_key = keys == SAME_KEY;
    if (daemon_has_key)
        must(net_key_for_leader(&key, &at_daemon, NULL) == 0);
    start_caller(&find);
    start_daemon(&accept);
    (void)event_base_loop(world.base, EVLOOP_NONBLOCK); /* connect and send the hello */
    for (int i = 0; i < STEPS_MAX && dd_rd_left(r) > 0; i++) {
        step(r);
        must(world.link[CALLER] == NULL || keys == SAME_KEY || keys == NO_KEY);
        must(world.link[DAEMON] == NULL || keys != OTHER_KEY);
    }
    for (int i = 0; i < 3; i++) { /* a timeout that fires late begins again */
        fake_clock_pass(LIMIT_MS);
        (void)event_base_loop(world.base, EVLOOP_NONBLOCK);
    }
    must(world.attempt == NULL && world.accept == NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dd_rd r = dd_rd_of(data, size);
    if (world.base == NULL) {
        (void)signal(SIGPIPE, SIG_IGN);
        world.base = event_base_new();
        must(world.base != NULL);
    }
    for (int i = 0; i < SIDES; i++) {
        world.sent[i] = world.came[i] = 0;
        world.changed[i] = false;
    }
    run(&r, (enum keys)(dd_rd_u8(&r) % KEYS_MAX));
    for (int i = 0; i < SIDES; i++) {
        close_side((enum side)i);
        link_free(DD_TAKE(world.link[i]));
    }
    (void)event_base_loop(world.base, EVLOOP_NONBLOCK);
    must(event_base_get_num_events(world.base, EVENT_BASE_COUNT_ADDED) == 0);
    return 0;
}
