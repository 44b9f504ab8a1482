#include "net/peer.h"

#include "base/auto.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <string.h>

enum { TCP_IS_ESTABLISHED = 1 }; /* Src: include/net/tcp_states.h */

struct request {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

struct answer {
    struct nlmsghdr head;
    union {
        struct inet_diag_msg sock;
        struct nlmsgerr error;
        int done;
    };
};

static void put_addr(uint32_t out[4], const struct net_addr *a, int family)
{
    memset(out, 0, 16);
    if (a->sa.sa_family == AF_INET6) {
        memcpy(out, &a->in6.sin6_addr, 16);
    } else if (family == AF_INET) {
        out[0] = a->in.sin_addr.s_addr;
    } else { /* ::ffff:a.b.c.d */
        out[2] = htonl(0xffff);
        out[3] = a->in.sin_addr.s_addr;
    }
}

static void make_request(struct request *r, int family, const struct net_addr *local,
                         const struct net_addr *remote)
{
    *r = (struct request){
        .head = {.nlmsg_len = sizeof(*r),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST            },
        .body = {.sdiag_family = (uint8_t)family,
                 .sdiag_protocol = IPPROTO_TCP,
                 .idiag_states = 1U << TCP_IS_ESTABLISHED},
    };
    struct inet_diag_sockid *id = &r->body.id;
    id->idiag_sport = htons(net_addr_port(local));
    id->idiag_dport = htons(net_addr_port(remote));
    put_addr(id->idiag_src, local, family);
    put_addr(id->idiag_dst, remote, family);
    if (local->sa.sa_family == AF_INET6)
        id->idiag_if = local->in6.sin6_scope_id;
    id->idiag_cookie[0] = INET_DIAG_NOCOOKIE;
    id->idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

/* The look-up falls back to a listener on that port, and a socket whose program has closed it
 * counts as uid 0 (Src: Linux inet_diag_find_one_icsk, sock_i_uid): only an established one that
 * still has an inode tells who is there. */
static int read_answer(const struct answer *a, size_t n, const struct request *asked, uid_t *ret)
{
    const struct inet_diag_sockid *id = &asked->body.id;
    if (n < sizeof(a->head))
        return -EPROTO;
    if (a->head.nlmsg_type == NLMSG_ERROR) {
        if (n < sizeof(a->head) + sizeof(a->error.error))
            return -EPROTO;
        return a->error.error < 0 ? a->error.error : -EPROTO;
    }
    if (a->head.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < sizeof(a->head) + sizeof(a->sock))
        return -EPROTO;
    if (a->sock.idiag_state != TCP_IS_ESTABLISHED || a->sock.idiag_inode == 0 ||
        a->sock.id.idiag_sport != id->idiag_sport || a->sock.id.idiag_dport != id->idiag_dport)
        return -ENOENT;
    *ret = a->sock.idiag_uid;
    return 0;
}

static int ask(int fd, int family, const struct net_addr *local, const struct net_addr *remote,
               uid_t *ret)
{
    struct request r;
    union {
        struct answer a;
        char bytes[4096]; /* attributes follow the answer */
    } in;
    make_request(&r, family, local, remote);
    if (send(fd, &r, sizeof(r), 0) < 0)
        return -errno;
    ssize_t n;
    do
        n = recv(fd, &in, sizeof(in), 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return read_answer(&in.a, (size_t)n, &r, ret);
}

/* A kernel without tcp_diag answers ENOENT, too. A dump of the sockets that are in none of the
 * states costs nothing and ends well only where the module is there. */
static bool has_tcp_diag(int fd)
{
    struct request r = {
        .head = {.nlmsg_len = sizeof(r),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = AF_INET,                      .sdiag_protocol = IPPROTO_TCP        },
    };
    struct answer a;
    if (send(fd, &r, sizeof(r), 0) < 0)
        return false;
    ssize_t n = recv(fd, &a, sizeof(a), 0);
    return n >= (ssize_t)(sizeof(a.head) + sizeof(a.done)) && a.head.nlmsg_type == NLMSG_DONE &&
           a.done == 0;
}

/* Src: Documentation/networking/proc_net_tcp.txt: addresses are native-endian words in hex. */
static int search_list(int family, const struct net_addr *local, const struct net_addr *remote,
                       uid_t *ret)
{
    uint32_t from[4];
    uint32_t to[4];
    char want[160];
    char line[512];
    size_t words = family == AF_INET ? 1 : 4;
    size_t len = 0;
    put_addr(from, local, family);
    put_addr(to, remote, family);
    for (size_t i = 0; i < words; i++)
        len += (size_t)snprintf(want + len, sizeof(want) - len, "%08X", from[i]);
    len += (size_t)snprintf(want + len, sizeof(want) - len, ":%04X ", net_addr_port(local));
    for (size_t i = 0; i < words; i++)
        len += (size_t)snprintf(want + len, sizeof(want) - len, "%08X", to[i]);
    len += (size_t)snprintf(want + len, sizeof(want) - len, ":%04X 01 ", net_addr_port(remote));
    DD_AUTO(file) FILE *f = fopen(family == AF_INET ? "/proc/net/tcp" : "/proc/net/tcp6", "re");
    if (f == NULL)
        return -errno;
    while (fgets(line, sizeof(line), f) != NULL) {
        const char *at = strstr(line, want);
        unsigned uid;
        unsigned long inode;
        if (at == NULL || sscanf(at + len, "%*x:%*x %*x:%*x %*x %u %*d %lu", &uid, &inode) != 2)
            continue;
        *ret = uid;
        return inode != 0 ? 0 : -ENOENT;
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
