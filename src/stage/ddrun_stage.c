/* ddrun-stage: copies directories to the storage of the nodes (--stage) and files of the nodes back
 * (--collect), in processes of its own, so that a file system that hangs stops no agent. It exits
 * when its agent's end of the socket is closed. */
#include "base/auto.h"
#include "base/num.h"
#include "config.h"
#include "net/loop.h"
#include "stage/collect_inner.h"
#include "stage/stage_client.h"
#include "stage/stage_enter.h"
#include "stage/stage_inner.h"
#include "stage/stage_interpreters.h"
#include "stage/stage_mount.h"

#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <zstd.h>

enum { USAGE = 2, THREADS_MAX = 8 };

static void warn_not_kept(const struct serve *s, const char *why)
{
    char text[500];
    (void)snprintf(text, sizeof(text),
                   "--stage-keep: %.100s keeps no copy, since it cannot mount one (%.200s)",
                   s->setup.texts.v[STAGE_SETUP_NODE], why);
    serve_send(s, STAGE_MSG_WARNING, text);
}

/* Fatal: without the mount, workers cannot read the copy of an image. */
static _Noreturn void fail_to_mount_image(const struct serve *s, const char *why)
{
    struct dd_err err = {0};
    const int rc = dd_err_set(&err, -EPERM, "--stage: %.100s cannot mount the image: %.300s",
                              s->setup.texts.v[STAGE_SETUP_NODE],
                              why[0] != '\0' ? why : "--stage-mount=no forbids it");
    (void)dd_err_tip(&err, rc,
                     "an image needs an existing directory on each node (--stage=IMAGE:DIR), and "
                     "user namespaces unless the user is root");
    serve_fail(s, err.text);
}

static void try_mount(struct serve *s)
{
    struct dd_err why = {0};
    char *const *setup = s->setup.texts.v;
    s->mounts = setup[STAGE_SETUP_DIR][0] != '\0' && strcmp(setup[STAGE_SETUP_MOUNT], "1") == 0 &&
                serve_can_mount(s, &why);
    if (setup[STAGE_SETUP_DIR][0] != '\0' && !s->mounts && serve_has_image(s))
        fail_to_mount_image(s, why.text);
    if (strcmp(setup[STAGE_SETUP_KEEP], "1") == 0 && !s->mounts)
        warn_not_kept(s, why.text[0] != '\0' ? why.text : "--stage-mount=no");
}

static int take_sources(struct serve *s, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv all = {0};
    int rc = dd_strv_copy(&all, s->setup.texts.v + STAGE_SETUP_SOURCES);
    rc = rc == 0 ? dd_strv_copy(&all, s->also.v) : rc;
    rc = rc == 0 ? stage_sources_parse(&s->sources, all.v) : rc;
    return rc == 0 ? 0 : dd_err_set(err, rc, "--stage: out of memory");
}

static int begin_round(struct serve *s, struct dd_err *err)
{
    int children, below;
    if (dd_num_int(s->round.texts.v[STAGE_ROUND_CHILDREN], 0, STAGE_FANOUT, &children) < 0 ||
        dd_num_int(s->round.texts.v[STAGE_ROUND_BELOW], children, INT32_MAX, &below) < 0)
        return dd_err_set(err, -EPROTO, "--stage: malformed message from the agent");
    s->below = (uint32_t)below;
    stage_pool_compress(s->pool, children > 0);
    int rc = take_sources(s, err);
    rc = rc == 0 ? serve_link_up(s, children, err) : rc;
    rc = rc == 0 ? serve_begin(s, err) : rc;
    if (rc == 0)
        try_mount(s); /* meanwhile, the reader lists the sources */
    return rc;
}

/* Send the port, and the interpreters. */
static int tell_port(struct serve *s, uint16_t port)
{
    DD_AUTO(strv) struct dd_strv texts = {0};
    char *const *setup = s->setup.texts.v;
    int rc = 0;
    if (strcmp(setup[STAGE_SETUP_READS], "1") == 0)
        rc = stage_interpreters_find(&s->also, setup + STAGE_SETUP_SOURCES, setup[STAGE_SETUP_DIR]);
    rc = rc == 0 ? dd_strv_pushf(&texts, "%u", port) : rc;
    rc = rc == 0 ? dd_strv_copy(&texts, s->also.v) : rc;
    return rc == 0 ? stage_client_send(s->control, STAGE_MSG_PORT, texts.v, NULL, 0) : rc;
}

static int take_setup(struct serve *s, struct dd_err *err)
{
    uint16_t port;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int rc = serve_listen(s, &port, err);
    if (rc < 0)
        return rc;
    rc = tell_port(s, port);
    if (rc < 0)
        return dd_err_set(err, rc, "--stage: cannot report to ddrun: %s", strerror(-rc));
    const int threads = cpus < 1 ? 1 : cpus > THREADS_MAX ? THREADS_MAX : (int)cpus;
    return stage_pool_new(&s->pool, threads, s->wake_fd, err);
}

static void on_control(evutil_socket_t fd, short what, void *arg)
{
    struct serve *s = arg;
    struct dd_err err = {0};
    DD_AUTO(stage_msg) struct stage_msg m = {0};
    (void)what;
    int rc = stage_client_take(fd, &m);
    if (rc == -EAGAIN)
        return;
    if (rc == -ECONNRESET)
        _exit(0); /* the agent has exited, or needs no copy */
    if (rc == 0 && m.type == STAGE_MSG_SETUP && s->setup.texts.n == 0) {
        s->setup = m;
        m = (struct stage_msg){0};
        rc = take_setup(s, &err);
    } else if (rc == 0 && m.type == STAGE_MSG_ALSO && s->setup.texts.n > 0 &&
               s->round.texts.n == 0) {
        dd_strv_done(&s->also);
        s->also = m.texts;
        m = (struct stage_msg){0};
    } else if (rc == 0 && m.type == STAGE_MSG_ROUND && s->setup.texts.n > 0 &&
               s->round.texts.n == 0) {
        s->round = m;
        m = (struct stage_msg){0};
        rc = begin_round(s, &err);
    }
    if (rc < 0)
        serve_fail(s, err.text[0] != '\0' ? err.text
                      : rc == -ENOMEM     ? "--stage: out of memory"
                                          : "--stage: malformed message from the agent");
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof(count)) == sizeof(count))
        serve_on_wake(arg);
}

static void on_progress(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    serve_tell_progress(arg);
}

static int serve(void)
{
    const struct timeval second = {.tv_sec = 1};
    static struct serve s = {.control = STAGE_CLIENT_FD, .listen_fd = -1};
    (void)umask(0); /* files get the permissions of their sources; see stage_unpack.h */
    /* keep the memory of freed chunks for the next ones: page faults would cost time */
    (void)mallopt(M_MMAP_THRESHOLD, 2 * STAGE_RAW_MAX);
    (void)mallopt(M_TRIM_THRESHOLD, STAGE_WINDOW * STAGE_RAW_MAX);
    s.dir = s.kept = DD_SCRATCH_NONE;
    TAILQ_INIT(&s.live);
    s.head = DD_BUF_INIT(LINK_FRAME_MAX);
    s.end = DD_BUF_INIT(LINK_FRAME_MAX);
    s.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s.base = net_loop_new();
    if (s.base == NULL || s.wake_fd < 0)
        return 1;
    s.control_event = event_new(s.base, s.control, EV_READ | EV_PERSIST, on_control, &s);
    s.wake_event = event_new(s.base, s.wake_fd, EV_READ | EV_PERSIST, on_wake, &s);
    s.progress_event = event_new(s.base, -1, EV_PERSIST, on_progress, &s);
    if (s.control_event == NULL || s.wake_event == NULL || s.progress_event == NULL ||
        event_add(s.control_event, NULL) < 0 || event_add(s.wake_event, NULL) < 0 ||
        event_add(s.progress_event, &second) < 0)
        return 1;
    event_base_dispatch(s.base);
    _exit(0); /* do not join the threads of the pool: they never end */
}

int main(int argc, char **argv)
{
    int fd;
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return ZSTD_versionNumber() < 10400; /* the program has started, so the library is there */
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("ddrun-stage %s\n", PACKAGE_VERSION);
        return 0;
    }
    if (argc > 3 && strcmp(argv[1], "enter") == 0 && dd_num_int(argv[2], 0, INT32_MAX, &fd) == 0) {
        (void)signal(SIGPIPE, SIG_DFL);
        return stage_enter(fd, argv + 3);
    }
    if (argc == 2 && strcmp(argv[1], "serve") == 0)
        return serve();
    if (argc == 2 && strcmp(argv[1], "mount") == 0)
        return stage_mount_serve();
    if (argc == 2 && strcmp(argv[1], "collect") == 0)
        return collect_serve();
    (void)fprintf(stderr, "ddrun-stage is a part of ddrun --stage and started by it\n");
    return USAGE;
}
