/* libpmix listens on a loopback port for the ranks, and its only thread reads the first bytes of
 * each connection with blocking calls: a silent connection of another user would stop all ranks. In
 * this program, the function below replaces libc's accept(); it passes only connections
 * of this user to libpmix. Src: libpmix 4.2.2, pmix_ptl_base_connection_handler(); ld.so(8) on the
 * order of symbol lookup. Only libpmix's listener thread calls it. */
#include "net/peer_uid.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_ours(int fd)
{
    static struct net_peer *peer;
    struct sockaddr_storage here = {0};
    socklen_t len = sizeof(here);
    uid_t other;
    if (getsockname(fd, (struct sockaddr *)&here, &len) < 0)
        return false;
    /* a UNIX socket is in our private directory */
    if (here.ss_family != AF_INET && here.ss_family != AF_INET6)
        return true;
    return (peer != NULL || net_peer_new(&peer) == 0) && net_peer_own_fd(peer, fd, &other) == 0;
}

int accept(int listener, struct sockaddr *addr, socklen_t *len)
{
    const socklen_t room = len != NULL ? *len : 0;
    struct pollfd more = {.fd = listener, .events = POLLIN};
    for (;;) {
        if (len != NULL)
            *len = room;
        const int fd = accept4(listener, addr, len, 0);
        if (fd < 0 || is_ours(fd))
            return fd;
        (void)close(fd);
        if (poll(&more, 1, 0) <= 0) {
            errno = EAGAIN; /* libpmix waits for the next connection */
            return -1;
        }
    }
}
