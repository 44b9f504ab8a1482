/* Encode queries about TCP sockets of this machine and decode the answers: netlink (sock_diag) and,
 * as a fallback, lines of /proc/net/tcp. No I/O. Src: sock_diag(7), Linux;
 * Documentation/networking/proc_net_tcp.txt. */
#ifndef DD_NET_PEER_TEXT_H
#define DD_NET_PEER_TEXT_H

#include "net/addr.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <sys/types.h>

struct peer_request {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

/* The bytes that follow the line number in the wanted line of /proc/net/tcp. */
struct peer_line {
    char text[160];
    size_t len;
};

/* family: AF_INET6 also finds IPv6 sockets with IPv4 addresses. */
void peer_request_make(struct peer_request *r, int family, const struct net_addr *local,
                       const struct net_addr *remote);
/* Request a dump of no sockets, which succeeds only if the kernel has tcp_diag. */
void peer_request_probe(struct peer_request *r);
/* Return 0 with the owner of the requested socket; -ENOENT: no such socket; another -errno:
 * reported by the kernel; -EPROTO: anything else. */
int peer_answer_read(const void *bytes, size_t n, const struct peer_request *asked, uid_t *ret);
/* True if the bytes belong to the answer to this request and not to an earlier one. */
bool peer_answer_is_of(const void *bytes, size_t n, const struct peer_request *asked);
bool peer_answer_probed(const void *bytes, size_t n);

void peer_line_make(struct peer_line *ret, int family, const struct net_addr *local,
                    const struct net_addr *remote);
/* Return 0 with the owner of the socket, -ENOENT if its program has closed it, or 1 if the line is
 * about another socket. */
int peer_line_read(const struct peer_line *want, const char *line, uid_t *ret);

#endif
