#include "net/peer.h"

#include "base/auto.h"
#include "net/peer_text.h"

#include <errno.h>
#include <stdio.h>

static int ask(int fd, int family, const struct net_addr *local, const struct net_addr *remote,
               uid_t *ret)
{
    struct peer_request r;
    char bytes[4096]; /* attributes follow the answer */
    peer_request_make(&r, family, local, remote);
    if (send(fd, &r, sizeof(r), 0) < 0)
        return -errno;
    ssize_t n;
    do
        n = recv(fd, bytes, sizeof(bytes), 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return peer_answer_read(bytes, (size_t)n, &r, ret);
}

/* A kernel without tcp_diag answers ENOENT, too. A dump of the sockets that are in none of the
 * states costs nothing and ends well only where the module is there. */
static bool has_tcp_diag(int fd)
{
    struct peer_request r;
    char bytes[4096];
    peer_request_probe(&r);
    if (send(fd, &r, sizeof(r), 0) < 0)
        return false;
    ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
    return n > 0 && peer_answer_probed(bytes, (size_t)n);
}

static int search_list(int family, const struct net_addr *local, const struct net_addr *remote,
                       uid_t *ret)
{
    struct peer_line want;
    char line[512];
    peer_line_make(&want, family, local, remote);
    DD_AUTO(file) FILE *f = fopen(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
    if (f == NULL)
        return -errno;
    while (fgets(line, sizeof(line), f) != NULL) {
        int rc = peer_line_read(&want, line, ret);
        if (rc <= 0)
            return rc;
    }
    return -ENOENT;
}

int net_peer_uid(const struct net_addr *local, const struct net_addr *remote, uid_t *ret)
{
    if (local->len == 0 || remote->len == 0 || local->sa.sa_family != remote->sa.sa_family)
        return -EINVAL;
    int family = local->sa.sa_family;
    DD_AUTO(fd) int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    int rc = fd < 0 ? -errno : ask(fd, family, local, remote, ret);
    if (rc == -ENOENT && family == AF_INET) /* an IPv6 socket that talks IPv4 */
        rc = ask(fd, AF_INET6, local, remote, ret);
    if (rc == 0 || (rc == -ENOENT && has_tcp_diag(fd)))
        return rc;
    rc = search_list(family, local, remote, ret);
    if (rc == -ENOENT && family == AF_INET)
        rc = search_list(AF_INET6, local, remote, ret);
    return rc;
}
