#include "net/peer_uid.h"

#include "base/auto.h"
#include "base/uid.h"
#include "net/peer_text.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct net_peer {
    int fd; /* -1: netlink is unavailable */
    enum { DIAG_UNKNOWN, DIAG_MISSING, DIAG_WORKS } diag;
    uint32_t seq;
    struct dd_uid uid;
};

/* Send the request and receive its answer. The kernel answers within send(2). Messages from other
 * senders and remainders of earlier answers are skipped. */
static ssize_t call(struct net_peer *p, struct peer_request *r, void *out, size_t size)
{
    struct sockaddr_nl from;
    struct iovec iov = {.iov_base = out, .iov_len = size};
    struct msghdr m = {
        .msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;
    r->head.nlmsg_seq = ++p->seq;
    if (p->fd < 0 || send(p->fd, r, sizeof(*r), 0) < 0)
        return p->fd < 0 ? -EBADF : -errno;
    do {
        m.msg_namelen = sizeof(from);
        n = recvmsg(p->fd, &m, MSG_DONTWAIT);
    } while ((n < 0 && (errno == EINTR || errno == ENOBUFS)) ||
             (n >= 0 && (from.nl_pid != 0 || !peer_answer_is_of(out, (size_t)n, r))));
    return n < 0 ? -errno : n;
}

static int peer_uid_ask(struct net_peer *p, int family, const struct net_addr *local,
                        const struct net_addr *remote, uid_t *ret)
{
    struct peer_request r;
    char bytes[4096]; /* attributes follow the answer */
    peer_request_make(&r, family, local, remote);
    ssize_t n = call(p, &r, bytes, sizeof(bytes));
    return n < 0 ? (int)n : peer_answer_read(bytes, (size_t)n, &r, ret);
}

/* A kernel without tcp_diag also answers ENOENT. A dump of sockets in an empty set of states costs
 * nothing and succeeds only if the module is available. */
static bool has_tcp_diag(struct net_peer *p)
{
    struct peer_request r;
    char bytes[4096];
    if (p->diag == DIAG_UNKNOWN) {
        peer_request_probe(&r);
        const ssize_t n = call(p, &r, bytes, sizeof(bytes));
        p->diag = n > 0 && peer_answer_probed(bytes, (size_t)n) ? DIAG_WORKS : DIAG_MISSING;
    }
    return p->diag == DIAG_WORKS;
}

int net_peer_new(struct net_peer **ret)
{
    struct net_peer *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    dd_uid_read(&p->uid);
    p->fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    *ret = p;
    return 0;
}

void net_peer_free(struct net_peer *p)
{
    if (p == NULL)
        return;
    if (p->fd >= 0)
        close(p->fd);
    free(p);
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

/* -EAGAIN: only the list of all sockets in /proc has the answer. */
static int peer_uid_quick(struct net_peer *p, const struct net_addr *local,
                          const struct net_addr *remote, uid_t *ret)
{
    if (local->len == 0 || remote->len == 0 || local->sa.sa_family != remote->sa.sa_family)
        return -EINVAL;
    int family = local->sa.sa_family;
    int rc = peer_uid_ask(p, family, local, remote, ret);
    if (rc == -ENOENT && family == AF_INET) /* an IPv6 socket with an IPv4 peer */
        rc = peer_uid_ask(p, AF_INET6, local, remote, ret);
    return rc == 0 || (rc == -ENOENT && has_tcp_diag(p)) ? rc : -EAGAIN;
}

int net_peer_uid(struct net_peer *p, const struct net_addr *local, const struct net_addr *remote,
                 uid_t *ret)
{
    const int family = local->sa.sa_family;
    int rc = peer_uid_quick(p, local, remote, ret);
    if (rc != -EAGAIN)
        return rc;
    rc = search_list(family, local, remote, ret);
    if (rc == -ENOENT && family == AF_INET)
        rc = search_list(AF_INET6, local, remote, ret);
    return rc;
}

int net_peer_judge(const struct net_peer *p, int rc, uid_t uid, uid_t *ret_uid)
{
    if (rc < 0 || dd_uid_is_own(&p->uid, uid))
        return rc;
    *ret_uid = uid;
    return -EPERM;
}

int net_peer_own(struct net_peer *p, const struct net_addr *local, const struct net_addr *remote,
                 uid_t *ret_uid)
{
    uid_t uid = (uid_t)-1;
    const int rc = net_peer_uid(p, local, remote, &uid);
    return net_peer_judge(p, rc, uid, ret_uid);
}

int net_peer_own_quick(struct net_peer *p, const struct net_addr *local,
                       const struct net_addr *remote, uid_t *ret_uid)
{
    uid_t uid = (uid_t)-1;
    const int rc = peer_uid_quick(p, local, remote, &uid);
    return net_peer_judge(p, rc, uid, ret_uid);
}

static int peer_uid_addr(int fd, int (*get)(int, struct sockaddr *, socklen_t *),
                         struct net_addr *ret)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    return get(fd, (struct sockaddr *)&ss, &len) < 0
               ? -ENOTCONN
               : net_addr_from_sockaddr(ret, (struct sockaddr *)&ss, len);
}

int net_peer_own_fd(struct net_peer *p, int fd, uid_t *ret_uid)
{
    struct net_addr here;
    struct net_addr there;
    int rc = peer_uid_addr(fd, getsockname, &here);
    if (rc == 0)
        rc = peer_uid_addr(fd, getpeername, &there);
    if (rc == 0)
        rc = net_peer_own(p, &there, &here, ret_uid);
    return rc == 0 && !net_peer_is_connected(fd) ? -ENOTCONN : rc;
}

bool net_peer_is_connected(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof(info);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 && len > 0 &&
           (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT);
}
