#include "worker/socket_bytes.h"

#include "base/auto.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 1 << 15, /* bytes of the largest datagram of a netlink dump */
    STATE_ESTABLISHED = 1,
    WAIT_S = 1,
};

static int socket_bytes_add(struct socket_bytes *s, uint64_t inode, uint64_t bytes)
{
    if (s->n == SOCKET_BYTES_MAX)
        return -EOVERFLOW;
    if (s->n == s->cap) {
        const size_t cap = s->cap == 0 ? 64 : 2 * s->cap;
        struct socket_bytes_entry *v = realloc(s->v, cap * sizeof(*v));
        if (v == NULL)
            return -ENOMEM;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = (struct socket_bytes_entry){.inode = inode, .bytes = bytes};
    return 0;
}

/* Return how many bytes the attribute INET_DIAG_INFO reports; 0: there is none. Older kernels send
 * a shorter struct tcp_info. */
static uint64_t socket_bytes_of_attributes(const char *p, size_t n)
{
    struct rtattr a;
    while (n >= sizeof(a)) {
        memcpy(&a, p, sizeof(a));
        if (a.rta_len < sizeof(a) || a.rta_len > n)
            break;
        if (a.rta_type == INET_DIAG_INFO) {
            struct tcp_info info = {0};
            const size_t len = a.rta_len - sizeof(a);
            memcpy(&info, p + sizeof(a), len < sizeof(info) ? len : sizeof(info));
            return info.tcpi_bytes_acked + info.tcpi_bytes_received;
        }
        const size_t step = RTA_ALIGN((size_t)a.rta_len);
        if (step >= n)
            break;
        p += step;
        n -= step;
    }
    return 0;
}

static int socket_bytes_of_message(struct socket_bytes *to, const char *p, size_t n)
{
    struct inet_diag_msg m;
    if (n < sizeof(m))
        return -EPROTO;
    memcpy(&m, p, sizeof(m));
    return socket_bytes_add(to, m.idiag_inode,
                            socket_bytes_of_attributes(p + sizeof(m), n - sizeof(m)));
}

static int socket_bytes_error(const char *p, size_t n)
{
    int code = 0;
    if (n < sizeof(code))
        return -EPROTO;
    memcpy(&code, p, sizeof(code));
    return code < 0 && code > -4096 ? code : 0;
}

int socket_bytes_parse(struct socket_bytes *to, const void *answer, size_t len)
{
    const char *p = answer;
    struct nlmsghdr h;
    while (len >= sizeof(h)) {
        memcpy(&h, p, sizeof(h));
        if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len)
            return -EPROTO;
        if (h.nlmsg_type == NLMSG_DONE)
            return 0;
        if (h.nlmsg_type == NLMSG_ERROR)
            return socket_bytes_error(p + sizeof(h), h.nlmsg_len - sizeof(h));
        int rc = h.nlmsg_type == SOCK_DIAG_BY_FAMILY
                     ? socket_bytes_of_message(to, p + sizeof(h), h.nlmsg_len - sizeof(h))
                     : 0;
        if (rc < 0)
            return rc;
        const size_t step = NLMSG_ALIGN((size_t)h.nlmsg_len);
        if (step >= len)
            break;
        p += step;
        len -= step;
    }
    return 1;
}

static int socket_bytes_dump(struct socket_bytes *ret, int fd, int family)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 request;
    } ask = {.head = {.nlmsg_len = sizeof(ask),
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
             .request = {.sdiag_family = (unsigned char)family,
                         .sdiag_protocol = IPPROTO_TCP,
                         .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                         .idiag_states = 1 << STATE_ESTABLISHED}};
    DD_AUTO(free) char *answer = malloc(ANSWER_MAX);
    if (answer == NULL)
        return -ENOMEM;
    if (send(fd, &ask, sizeof(ask), 0) < 0)
        return -errno;
    for (int rc = 1; rc != 0;) {
        const ssize_t n = recv(fd, answer, ANSWER_MAX, 0);
        if (n < 0 && errno == EINTR)
            continue;
        rc = n > 0 ? socket_bytes_parse(ret, answer, (size_t)n) : n == 0 ? -EPROTO : -errno;
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int socket_bytes_compare(const void *x, const void *y)
{
    const struct socket_bytes_entry *a = x;
    const struct socket_bytes_entry *b = y;
    return (a->inode > b->inode) - (a->inode < b->inode);
}

int socket_bytes_read(struct socket_bytes *ret)
{
    const struct timeval limit = {.tv_sec = WAIT_S};
    DD_AUTO(fd) int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0)
        return -errno;
    int rc = socket_bytes_dump(ret, fd, AF_INET);
    const int also = rc == 0 ? socket_bytes_dump(ret, fd, AF_INET6) : 0;
    rc = also < 0 && also != -ENOENT ? also : rc; /* -ENOENT: a kernel without IPv6 */
    if (ret->n > 1)
        qsort(ret->v, ret->n, sizeof(ret->v[0]), socket_bytes_compare);
    return rc;
}

bool socket_bytes_find(const struct socket_bytes *s, uint64_t inode, uint64_t *ret_bytes)
{
    const struct socket_bytes_entry key = {.inode = inode};
    const struct socket_bytes_entry *e = s->n > 0 ? bsearch(&key, s->v, s->n, sizeof(s->v[0]),
                                                            socket_bytes_compare)
                                                  : NULL;
    if (e != NULL)
        *ret_bytes = e->bytes;
    return e != NULL;
}

void socket_bytes_done(struct socket_bytes *s)
{
    free(s->v);
    *s = (struct socket_bytes){0};
}
