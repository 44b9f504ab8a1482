#include "net/local_socket.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/strv.h"
#include "base/uid.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX "ddrun-ctl/"

enum {
    BACKLOG = 64,   /* any user can fill the queue; a short queue means a short wait */
    BUSY_MS = 2000, /* shared equally by all sockets whose queue is full */
};

/* Fill in an abstract address: NUL byte, then the name without a terminator. */
static socklen_t address_of(struct sockaddr_un *ret, const char *name)
{
    const size_t len = strlen(name);
    const size_t n = len < sizeof(ret->sun_path) ? len : sizeof(ret->sun_path) - 1;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

int local_socket_listen(int *ret_fd, struct dd_err *err)
{
    struct sockaddr_un sa;
    uint64_t random;
    char name[64];
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    (void)snprintf(name, sizeof(name), PREFIX "%d/%016" PRIx64, (int)getpid(), random);
    const socklen_t len = address_of(&sa, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&sa, len) < 0 || listen(fd, BACKLOG) < 0) {
        int rc = dd_err_set(err, -errno, "cannot listen for ddctl: %m");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

static int uid_of_peer(int fd, uid_t *ret)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return -errno;
    *ret = who.uid;
    return 0;
}

int local_socket_accept(int listen_fd)
{
    struct dd_uid self;
    uid_t uid = (uid_t)-1;
    DD_AUTO(fd) int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (uid_of_peer(fd, &uid) < 0 || (uid != geteuid() && uid != 0))
        return -EACCES; /* before dd_uid_read(), which opens files: refusing must be cheap */
    dd_uid_read(&self);
    return uid == 0 || dd_uid_is_own(&self, uid) ? DD_TAKE_FD(fd) : -EACCES;
}

/* Parse a line of /proc/net/unix. Return "@NAME" from the end of the line if the socket listens,
 * else NULL. */
static char *listening_name(char *line)
{
    unsigned flags = 0;
    char *at = strstr(line, " @" PREFIX);
    if (at == NULL || sscanf(line, "%*[^:]: %*x %*x %x", &flags) != 1 || (flags & 0x10000) == 0)
        return NULL;
    at[strcspn(at, "\n")] = '\0';
    return at + 2;
}

/* Block while the queue is full, for at most wait_ms; 0: do not block. The kernel wakes a blocked
 * caller when the agent accepts a connection; a caller that polls may find the queue filled again
 * by another user each time. Src: unix(7), SO_SNDTIMEO in socket(7). */
static int connect_to(const char *name, const struct dd_uid *self, unsigned wait_ms)
{
    struct sockaddr_un sa;
    uid_t uid = (uid_t)-1;
    const socklen_t len = address_of(&sa, name);
    const int flags = wait_ms == 0 ? SOCK_CLOEXEC | SOCK_NONBLOCK : SOCK_CLOEXEC;
    const struct timeval wait = dd_timeval(wait_ms * DD_NS_PER_MS);
    DD_AUTO(fd) int fd = socket(AF_UNIX, SOCK_STREAM | flags, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
        connect(fd, (const struct sockaddr *)&sa, len) < 0)
        return -errno;
    int rc = uid_of_peer(fd, &uid);
    if (rc == 0 && !dd_uid_is_own(self, uid))
        rc = -EACCES;
    if (rc == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        rc = -errno;
    return rc == 0 ? DD_TAKE_FD(fd) : rc;
}

/* Connections to sockets of this user's agents; names of sockets with a full queue, whose owner is
 * unknown. */
struct found {
    struct dd_uid self;
    int *fds;
    size_t n, cap;
    struct dd_strv busy;
};

/* Skip sockets of other users and sockets that no longer exist. */
static int try_name(struct found *f, const char *name, unsigned wait_ms)
{
    int fd = connect_to(name, &f->self, wait_ms);
    if (fd == -EAGAIN || fd == -EINTR) /* EINTR: ddctl was stopped meanwhile */
        return dd_strv_push(&f->busy, name);
    if (fd == -EMFILE || fd == -ENFILE || fd == -ENOMEM || fd == -ENOBUFS)
        return fd;
    if (fd < 0)
        return 0;
    if (f->n == f->cap) {
        size_t cap = f->cap > 0 ? 2 * f->cap : 8;
        int *fds = realloc(f->fds, cap * sizeof(*fds));
        if (fds == NULL) {
            close(fd);
            return -ENOMEM;
        }
        f->fds = fds;
        f->cap = cap;
    }
    f->fds[f->n++] = fd;
    return 0;
}

static int try_all(struct found *f)
{
    DD_AUTO(free) char *line = NULL;
    DD_AUTO(file) FILE *in = fopen("/proc/net/unix", "re");
    size_t size = 0;
    int rc = 0;
    if (in == NULL)
        return -errno;
    while (rc == 0 && getline(&line, &size, in) > 0) {
        const char *name = listening_name(line);
        rc = name != NULL ? try_name(f, name, 0) : 0;
    }
    return rc;
}

/* Retry the busy sockets; those that are still busy return to the list. Each gets an equal share of
 * the time that is left, at least 1 ms: no other user's full socket takes all of it. */
static int try_busy(struct found *f)
{
    DD_AUTO(strv) struct dd_strv names = f->busy;
    const uint64_t end = dd_now_ns() + BUSY_MS * DD_NS_PER_MS;
    int rc = 0;
    f->busy = (struct dd_strv){0};
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        const uint64_t now = dd_now_ns();
        const uint64_t left = now < end ? (end - now) / DD_NS_PER_MS : 0;
        const uint64_t share = left / (names.n - i);
        rc = try_name(f, names.v[i], (unsigned)(left > 0 && share == 0 ? 1 : share));
    }
    return rc;
}

int local_socket_connect(int **ret_fds, size_t *ret_n, size_t *ret_busy)
{
    struct found f = {0};
    dd_uid_read(&f.self);
    int rc = try_all(&f);
    if (rc == 0 && f.busy.n > 0)
        rc = try_busy(&f);
    *ret_busy = f.busy.n;
    dd_strv_done(&f.busy);
    if (rc < 0) {
        for (size_t i = 0; i < f.n; i++)
            close(f.fds[i]);
        free(f.fds);
        return rc;
    }
    *ret_fds = f.fds;
    *ret_n = f.n;
    return 0;
}
