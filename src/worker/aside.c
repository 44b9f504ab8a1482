#include "worker/aside.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT_MS = 2000, SLICE_MS = 100, CHUNK = 64 * 1024, OUT_FD = 3 };

static _Noreturn void child_run(int out, const char *path, size_t most)
{
    static char chunk[CHUNK];
    struct stat st;
    if (dup2(out, OUT_FD) < 0)
        _exit(1);
    spawn_close_from(OUT_FD + 1);
    for (int fd = 0; fd < OUT_FD; fd++) /* a pipe of the user must not stay open in this process */
        (void)close(fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        _exit(0);
    off_t from = (uint64_t)st.st_size > most ? st.st_size - (off_t)most : 0;
    for (size_t left = most; left > 0;) {
        ssize_t n = pread(fd, chunk, left < sizeof(chunk) ? left : sizeof(chunk), from);
        if (n <= 0 || dd_write_full(OUT_FD, chunk, (size_t)n) < 0)
            break;
        from += n;
        left -= (size_t)n;
    }
    _exit(0);
}

/* Read until the child closes the pipe. The time limit is a number of slices in which poll() finds
 * nothing: a stall of the whole machine uses up at most one slice, and leaves the others to the
 * child. */
static int collect(int fd, struct dd_buf *out)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (int waited = 0; waited < LIMIT_MS;) {
        int ready = poll(&p, 1, SLICE_MS);
        if (ready < 0 && errno != EINTR)
            return -errno;
        waited += ready == 0 ? SLICE_MS : 0;
        if (ready <= 0)
            continue;
        int rc = dd_buf_reserve(out, CHUNK);
        ssize_t n = rc < 0 ? 0 : read(fd, out->data + out->len, CHUNK);
        if (rc < 0 || n == 0)
            return rc;
        if (n > 0)
            out->len += (size_t)n;
        else if (errno != EINTR)
            return -errno;
    }
    return -ETIMEDOUT;
}

int aside_read_end(const char *path, size_t most, struct dd_buf *out)
{
    int fds[2];
    struct spawn_mask mask;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    DD_AUTO(fd) int from = fds[0];
    spawn_begin(&mask);
    pid_t pid = fork();
    if (pid == 0)
        child_run(fds[1], path, most);
    spawn_end(&mask);
    (void)close(fds[1]);
    if (pid < 0)
        return -EAGAIN;
    int rc = collect(from, out);
    if (rc < 0)
        (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL,
                  rc < 0 ? WNOHANG
                         : 0); /* if the child is stuck in the kernel, the guardian reaps it */
    return rc;
}
