#include "daemon/timeline_file.h"

#include "base/auto.h"
#include "base/io.h"
#include "report/trace_events.h"
#include "worker/spawn.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { QUEUE_MAX = 32 << 20, CHUNK = 1 << 16, LAST_MS = 1000, CHILD_FD = STDERR_FILENO + 1 };

struct timeline_file {
    struct dd_buf queue;
    struct event *on_room;
    int fd; /* -1: the child has ended */
};

/* ---- child ---- */

/* Copy until the daemon's end is closed; without any input, create no file. */
static int child_copy(const char *path)
{
    static char chunk[CHUNK];
    DD_AUTO(fd) int fd = -1;
    int rc = 0;
    for (;;) {
        const ssize_t n = read(CHILD_FD, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if (fd < 0)
            fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
        rc = fd < 0 ? -errno : dd_write_full(fd, chunk, (size_t)n);
        if (rc < 0)
            return rc;
    }
    return fd < 0 ? 0 : dd_write_full(fd, TRACE_END, strlen(TRACE_END));
}

/* All signals stay blocked: the child must write its input to the end while the job is being
 * stopped. */
static _Noreturn void child_run(int fd, const char *path, const struct dd_log *log)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)prctl(PR_SET_NAME, "ddrun-writer");
    if (fd != CHILD_FD && dup2(fd, CHILD_FD) < 0)
        _exit(1);
    spawn_close_from(CHILD_FD + 1);
    const int rc = child_copy(path);
    if (rc < 0)
        dd_log(log, DD_LOG_WARN, "--timeline: cannot write '%s': %s", path, strerror(-rc));
    _exit(rc < 0 ? 1 : 0);
}

/* ---- daemon ---- */

static void timeline_file_end(struct timeline_file *f)
{
    dd_buf_done(&f->queue);
    if (f->on_room != NULL)
        event_free(DD_TAKE(f->on_room));
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* Write what the pipe takes. */
static void timeline_file_flush(struct timeline_file *f)
{
    while (f->fd >= 0 && f->queue.len > 0) {
        const ssize_t n = write(f->fd, f->queue.data, f->queue.len);
        if (n > 0)
            dd_buf_consume(&f->queue, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            break;
        else if (n == 0 || errno != EINTR)
            timeline_file_end(f);
    }
    if (f->fd >= 0 && f->queue.len > 0)
        (void)event_add(f->on_room, NULL);
}

static void timeline_file_on_room(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    timeline_file_flush(arg);
}

int timeline_file_new(struct timeline_file **ret, struct event_base *base, const char *path,
                      const struct dd_log *log, struct dd_err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "--timeline: cannot create a pipe: %m");
    DD_AUTO(fd) int theirs = fds[0];
    DD_AUTO(fd) int mine = fds[1];
    const pid_t pid = fork();
    if (pid < 0)
        return dd_err_set(err, -errno, "--timeline: cannot fork the writer: %m");
    if (pid == 0)
        child_run(theirs, path, log);
    struct timeline_file *f = calloc(1, sizeof(*f));
    if (f == NULL || dd_fd_nonblock(mine) < 0 ||
        (f->on_room = event_new(base, mine, EV_WRITE, timeline_file_on_room, f)) == NULL) {
        free(f);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    f->queue = DD_BUF_INIT(QUEUE_MAX);
    f->fd = DD_TAKE_FD(mine);
    *ret = f;
    return 0;
}

int timeline_file_put(struct timeline_file *f, const void *p, size_t n)
{
    if (f->fd < 0)
        return -EPIPE;
    const int rc = dd_buf_append(&f->queue, p, n);
    timeline_file_flush(f);
    return rc < 0 ? -ENOBUFS : 0;
}

void timeline_file_free(struct timeline_file *f)
{
    if (f == NULL)
        return;
    const uint64_t end = dd_now_ns() + LAST_MS * DD_NS_PER_MS;
    while (f->fd >= 0 && f->queue.len > 0 && dd_now_ns() < end) {
        struct pollfd p = {.fd = f->fd, .events = POLLOUT};
        (void)poll(&p, 1, LAST_MS / 10);
        timeline_file_flush(f);
    }
    timeline_file_end(f);
    free(f);
}
