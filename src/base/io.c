#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int dd_fd_nonblock(int fd)
{
    int fl = fcntl(fd, F_GETFL);
    return fl < 0 || fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0 ? -errno : 0;
}

int dd_fd_keep(int fd)
{
    int fl = fcntl(fd, F_GETFD);
    return fl < 0 || fcntl(fd, F_SETFD, fl & ~FD_CLOEXEC) < 0 ? -errno : 0;
}

int dd_write_full(int fd, const void *p, size_t n)
{
    const char *c = p;
    while (n > 0) {
        ssize_t w = write(fd, c, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        c += w;
        n -= (size_t)w;
    }
    return 0;
}

int dd_read_full(int fd, void *p, size_t n)
{
    char *c = p;
    while (n > 0) {
        ssize_t r = read(fd, c, n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return r < 0 ? -errno : -ENODATA;
        c += r;
        n -= (size_t)r;
    }
    return 0;
}

bool dd_path_lies_in(const char *path, size_t len, const char *dir)
{
    const size_t n = strlen(dir);
    return n <= len && memcmp(path, dir, n) == 0 && (n == len || path[n] == '/');
}

/* A file with a second name may be one of this user's that another user has linked there. */
static bool is_planted(const struct stat *dir, const struct stat *st)
{
    if ((dir->st_mode & S_ISVTX) == 0 || S_ISDIR(st->st_mode))
        return false;
    return (st->st_uid != geteuid() && st->st_uid != dir->st_uid) ||
           (S_ISREG(st->st_mode) && st->st_nlink > 1);
}

static int open_beside(const char *path, const struct stat *dir, int flags, mode_t mode)
{
    struct stat st;
    const bool there = lstat(path, &st) == 0;
    const bool link = there && S_ISLNK(st.st_mode);
    if (there && is_planted(dir, &st))
        return -EACCES;
    DD_AUTO(fd) int fd = open(
        path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | (link ? 0 : O_NOFOLLOW), mode);
    if (fd < 0 || (!link && fstat(fd, &st) < 0))
        return -errno;
    return !link && is_planted(dir, &st) ? -EACCES : DD_TAKE_FD(fd);
}

int dd_open_unplanted(const char *path, int flags, mode_t mode)
{
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') /* lstat() would follow a link before the slash */
        n--;
    DD_AUTO(free) char *name = strndup(path, n);
    const char *slash = name != NULL ? strrchr(name, '/') : NULL;
    DD_AUTO(free) char *dir = NULL;
    if (name == NULL ||
        asprintf(&dir, "%.*s.", slash != NULL ? (int)(slash + 1 - name) : 0, name) < 0) {
        dir = NULL;
        return -ENOMEM;
    }
    return stat(dir, &st) < 0 ? -errno : open_beside(name, &st, flags, mode);
}

/* True for /dev/stdin and <(COMMAND), whose pipes a process has opened for this one. */
static bool is_open_already(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/", 6) == 0;
}

/* Open a file for reading. For a writer of a named pipe, the caller would wait without end. */
static int open_for_reading(const char *path, struct dd_err *err)
{
    struct stat st;
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return dd_err_set(err, -errno, "cannot open '%s': %m", path);
    if (S_ISREG(st.st_mode))
        return DD_TAKE_FD(fd);
    if (S_ISFIFO(st.st_mode) && !is_open_already(path))
        return dd_err_set(err, -EINVAL, "cannot read '%s': it is a named pipe, not a regular file",
                          path);
    if (fcntl(fd, F_SETFL, 0) < 0)
        return dd_err_set(err, -errno, "cannot read '%s': %m", path);
    return DD_TAKE_FD(fd);
}

int dd_read_file(const char *path, struct dd_buf *out, struct dd_err *err)
{
    DD_AUTO(fd) int fd = open_for_reading(path, err);
    if (fd < 0)
        return fd;
    for (;;) {
        char chunk[8192];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dd_err_set(err, -errno, "cannot read '%s': %m", path);
        if (n == 0)
            return 0;
        int rc = dd_buf_append(out, chunk, (size_t)n);
        if (rc == -EMSGSIZE)
            return dd_err_set(err, rc, "'%s' is larger than the %zu bytes allowed", path, out->max);
        if (rc < 0)
            return dd_err_set(err, rc, "out of memory while reading '%s'", path);
    }
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec t;
    (void)clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * DD_NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t dd_now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t dd_now_real_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

int dd_write_file(const char *path, const void *p, size_t n, struct dd_err *err)
{
    struct stat st;
    DD_AUTO(free) char *draft = NULL;
    if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) /* rename() would replace a device */
        return dd_err_set(err, -EEXIST, "cannot write file: not a regular file");
    if (asprintf(&draft, "%s.XXXXXX", path) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    DD_AUTO(fd) int fd = mkostemp(draft, O_CLOEXEC);
    if (fd < 0)
        return dd_err_set(err, -errno, "cannot create a temporary file in its directory: %m");
    mode_t mask = umask(0);
    (void)umask(mask);
    int rc = dd_write_full(fd, p, n);
    if (rc == 0 && (fchmod(fd, 0666 & ~mask) < 0 || rename(draft, path) < 0))
        rc = -errno;
    if (rc < 0) {
        (void)unlink(draft);
        errno = -rc;
        return dd_err_set(err, rc, "cannot write file: %m");
    }
    return 0;
}
