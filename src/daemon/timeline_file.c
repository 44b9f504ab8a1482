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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    QUEUE_MAX = 32 << 20,
    CHUNK = 1 << 16,
    LAST_MS = 1000, /* limit for the daemon to pass the queue to its child */
    END_MS = 5000,  /* limit for the writer after that: a busy machine may stall it for seconds */
    DATA_FD = STDERR_FILENO + 1,
};

struct timeline_file {
    struct dd_buf queue;
    struct event *on_room;
    int fd; /* -1: the child has ended */
};

/* ---- children ---- */

/* Open the file to write; *ret_st describes it. Do not use what has appeared at the path since
 * ddrun checked it: a link of another user, or a pipe whose reader would have to be waited for. */
static int writer_try_open(const char *path, int flags, struct stat *ret_st)
{
    DD_AUTO(fd) int fd = open(
        path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | flags, 0666);
    if (fd < 0 || fstat(fd, ret_st) < 0)
        return -errno;
    return S_ISREG(ret_st->st_mode) ? DD_TAKE_FD(fd) : -EEXIST;
}

/* Create or truncate the file. Replace a file of another user, who could read and change its
 * content, and a file with a second name, which another user may have given it. */
static int writer_open(const char *path)
{
    struct stat st;
    DD_AUTO(fd) int fd = writer_try_open(path, 0, &st);
    if (fd == -EACCES || (fd >= 0 && (st.st_uid != geteuid() || st.st_nlink > 1))) {
        if (unlink(path) < 0)
            return -errno;
        return writer_try_open(path, O_EXCL, &st);
    }
    if (fd < 0)
        return fd;
    return ftruncate(fd, 0) < 0 ? -errno : DD_TAKE_FD(fd);
}

/* Copy until the daemon's end is closed; without any input, create no file. */
static int writer_copy(const char *path)
{
    static char chunk[CHUNK];
    DD_AUTO(fd) int fd = -1;
    int rc = 0;
    for (;;) {
        const ssize_t n = read(DATA_FD, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        if (fd < 0)
            fd = writer_open(path);
        rc = fd < 0 ? fd : dd_write_full(fd, chunk, (size_t)n);
        if (rc < 0)
            return rc;
    }
    return fd < 0 ? 0 : dd_write_full(fd, TRACE_END, strlen(TRACE_END));
}

/* Exit with the error number. The reader of ddrun's output must not wait for this process. */
static _Noreturn void writer_run(const char *path)
{
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < DATA_FD; i++)
        (void)dup2(null, i);
    _exit(-writer_copy(path));
}

/* Wait until the writer has ended, but no longer than END_MS after the daemon has closed its end.
 * alive: a pipe whose other end the writer alone has. */
static bool monitor_wait(int alive)
{
    struct pollfd p[] = {{.fd = alive}, {.fd = DATA_FD}};
    while (poll(p, 2, -1) < 0 && errno == EINTR)
        ;
    return p[0].revents != 0 || poll(p, 1, END_MS) > 0;
}

static void monitor_run(const char *path, const struct dd_log *log)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        ends[0] = ends[1] = -1;
    const pid_t writer = ends[0] < 0 ? -1 : fork();
    if (writer == 0)
        writer_run(path);
    const char *why = writer < 0 ? strerror(errno) : NULL;
    close(ends[1]);
    if (why == NULL && !monitor_wait(ends[0])) {
        why = "the file system does not respond";
        (void)kill(writer, SIGKILL); /* if it is stuck in the kernel, the guardian reaps it */
    } else if (why == NULL && waitpid(writer, &status, 0) == writer && status != 0) {
        why = WIFEXITED(status) ? strerror(WEXITSTATUS(status))
                                : "the process that writes it was killed";
    }
    if (why != NULL)
        dd_log(log, DD_LOG_WARN, "--timeline: cannot write '%s': %s", path, why);
}

/* The daemon may not signal processes (daemon/confine.h): its child limits how long the writer, a
 * child of the child, delays the end of the job. All signals stay blocked in both: the input must
 * be written to the end while the job is being stopped. */
static _Noreturn void child_run(int fd, const char *path, const struct dd_log *log)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)prctl(PR_SET_NAME, "ddrun-timeline");
    if (fd != DATA_FD && dup2(fd, DATA_FD) < 0)
        _exit(1);
    spawn_close_from(DATA_FD + 1);
    monitor_run(path, log);
    _exit(0);
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

/* Write to the pipe as much of the queue as it has room for. */
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
        return dd_err_set(err, -ENOMEM, "--timeline: out of memory for '%s'", path);
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
    return rc == -EMSGSIZE ? -ENOBUFS : rc;
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
