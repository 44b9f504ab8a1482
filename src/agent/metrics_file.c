/* A child process writes the file: a file server that hangs must not stop the agent and its
 * heartbeat. The child gets each text as one packet, and exits when the agent's end of the socket
 * is closed, also if the agent was killed: so no temporary file is left. */
#include "agent/metrics_file.h"

#include "agent/control.h"
#include "agent/agent.h"
#include "base/io.h"
#include "worker/spawn.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_MAX = 128 * 1024, SOCKET_FD = 3, LAST_MS = 5000 };

struct metrics_file {
    struct metrics_file_parts parts;
    const char *path; /* file to write; NULL: none */
    pid_t child;      /* pid of the child; 0: not started yet */
    int fd;
    struct event *on_error;
};

/* ---- child ---- */

/* All signals stay blocked: the child must write the last text while the job is being ended. */
static _Noreturn void metrics_file_run(const char *path, int fd)
{
    static char text[PACKET_MAX];
    bool failed = false;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)prctl(PR_SET_NAME, "ddrun-metrics");
    for (int i = 0; i < 3; i++) /* an open pipe would make its reader wait for this process */
        (void)dup2(null, i);
    if (fd != SOCKET_FD && dup2(fd, SOCKET_FD) < 0)
        _exit(1);
    spawn_close_from(SOCKET_FD + 1);
    for (;;) {
        const ssize_t n = recv(SOCKET_FD, text, sizeof(text), 0);
        if (n <= 0)
            _exit(0);
        const int error = -dd_write_file(path, text, (size_t)n, NULL);
        if (error != 0 && !failed)
            (void)send(SOCKET_FD, &error, sizeof(error), MSG_NOSIGNAL | MSG_DONTWAIT);
        failed = error != 0;
    }
}

/* ---- agent ---- */

static void metrics_file_warn(const struct metrics_file *f, const char *why)
{
    dd_log(f->parts.loop->cfg->log, DD_LOG_WARN, "--metrics: cannot write '%s': %s", f->path, why);
}

/* Warn of an error that the child has reported. False: the child has ended. */
static bool metrics_file_take_error(const struct metrics_file *f)
{
    int error = 0;
    const ssize_t n = recv(f->fd, &error, sizeof(error), MSG_DONTWAIT);
    if (n == (ssize_t)sizeof(error))
        metrics_file_warn(f, strerror(error));
    return n != 0;
}

static void metrics_file_on_error(evutil_socket_t fd, short what, void *arg)
{
    const struct metrics_file *f = arg;
    (void)fd;
    (void)what;
    if (metrics_file_take_error(f))
        return;
    event_del(f->on_error);
    metrics_file_warn(f, "the process that writes it has ended");
}

static int metrics_file_spawn(struct metrics_file *f)
{
    struct spawn_mask mask;
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    f->fd = fds[0];
    DD_AUTO(fd) int theirs = fds[1];
    spawn_begin(&mask);
    f->child = fork();
    if (f->child == 0)
        metrics_file_run(f->path, theirs);
    spawn_end(&mask);
    if (f->child < 0)
        return -errno;
    round_protect(f->parts.round, f->child);
    f->on_error = event_new(f->parts.loop->base, f->fd, EV_READ | EV_PERSIST, metrics_file_on_error,
                            f);
    return f->on_error != NULL && event_add(f->on_error, NULL) == 0 ? 0 : -ENOMEM;
}

int metrics_file_new(struct metrics_file **ret, const struct metrics_file_parts *parts,
                     const char *path)
{
    struct metrics_file *f = *ret = calloc(1, sizeof(*f));
    if (f == NULL)
        return -ENOMEM;
    *f = (struct metrics_file){.parts = *parts, .path = path, .fd = -1};
    return 0;
}

void metrics_file_start(struct metrics_file *f)
{
    if (f->path == NULL)
        return;
    const int rc = f->child == 0 ? metrics_file_spawn(f) : 0;
    if (rc < 0)
        dd_log(f->parts.loop->cfg->log, DD_LOG_WARN,
               "--metrics: cannot start the process that writes the file: %s", strerror(-rc));
    uplink_send(f->parts.uplink,
                MSG(CTL_REQUEST, .id = CONTROL_ID_METRICS, .what = "metrics", .text = "follow"));
}

/* A text is dropped while the child is busy with earlier ones and the socket is full; the child
 * would take an empty packet for the end of the connection. */
void metrics_file_take(const struct metrics_file *f, const char *text)
{
    if (f->fd >= 0 && text[0] != '\0')
        (void)send(f->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void metrics_file_free(struct metrics_file *f)
{
    const struct timespec pause = {.tv_nsec = (long)DD_NS_PER_MS};
    const uint64_t end = dd_now_ns() + LAST_MS * DD_NS_PER_MS;
    if (f == NULL)
        return;
    if (f->on_error != NULL)
        event_free(f->on_error);
    if (f->fd >= 0)
        (void)shutdown(f->fd, SHUT_WR);
    while (f->child > 0 && waitpid(f->child, NULL, WNOHANG) == 0) {
        if (dd_now_ns() >= end) { /* if the child is stuck in the kernel, the guardian reaps it */
            metrics_file_warn(f, "the file system does not respond");
            (void)kill(f->child, SIGKILL);
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    if (f->fd >= 0) {
        (void)metrics_file_take_error(f);
        close(f->fd);
    }
    free(f);
}
