#include "net/here.h"

#include "base/uid.h"

#include <errno.h>
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
    BACKLOG = 64,
    MOST_NAMES = 4096, /* others' too: whoever makes more of them is not listened to */
};

/* Of an abstract name: a NUL byte in front, none behind. */
static socklen_t address_of(struct sockaddr_un *ret, const char *name)
{
    const size_t len = strlen(name);
    const size_t n = len < sizeof(ret->sun_path) ? len : sizeof(ret->sun_path) - 1;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

int net_here_listen(int *ret_fd, struct dd_err *err)
{
    struct sockaddr_un sa;
    uint64_t random;
    char name[64];
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return dd_err_set(err, -EIO, "no random numbers");
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

int net_here_accept(int listen_fd)
{
    struct dd_uid self;
    uid_t uid = (uid_t)-1;
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    dd_uid_read(&self);
    if (uid_of_peer(fd, &uid) == 0 && (dd_uid_is_own(&self, uid) || uid == 0))
        return fd;
    close(fd);
    return -EACCES;
}

/* "@NAME" at the end of a line of /proc/net/unix, of a socket that listens; NULL: another line. */
static char *listening_name(char *line)
{
    unsigned flags = 0;
    char *at = strstr(line, " @" PREFIX);
    if (at == NULL || sscanf(line, "%*[^:]: %*x %*x %x", &flags) != 1 || (flags & 0x10000) == 0)
        return NULL;
    at[strcspn(at, "\n")] = '\0';
    return at + 2;
}

int net_here_names(struct dd_strv *ret)
{
    char *line = NULL;
    size_t size = 0;
    int rc = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    if (f == NULL)
        return -errno;
    while (rc == 0 && ret->n < MOST_NAMES && getline(&line, &size, f) > 0) {
        const char *name = listening_name(line);
        rc = name != NULL ? dd_strv_push(ret, name) : 0;
    }
    free(line);
    (void)fclose(f);
    return rc;
}

int net_here_connect(const char *name)
{
    struct sockaddr_un sa;
    struct dd_uid self;
    uid_t uid = (uid_t)-1;
    const socklen_t len = address_of(&sa, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd < 0 || connect(fd, (const struct sockaddr *)&sa, len) < 0 ? -errno : uid_of_peer(fd, &uid);
    dd_uid_read(&self);
    if (rc == 0 && !dd_uid_is_own(&self, uid))
        rc = -EACCES;
    if (rc == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return rc;
}
