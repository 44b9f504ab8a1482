/* What is asked of the kernel about a TCP socket of this machine, and what its answers mean:
 * netlink (sock_diag) and, where that is missing, the lines of /proc/net/tcp. No socket, no file.
 * Src: sock_diag(7), Linux; Documentation/networking/proc_net_tcp.txt. */
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

/* The line of /proc/net/tcp that is looked for begins, after its number, with these bytes. */
struct peer_line {
    char text[160];
    size_t len;
};

/* family: AF_INET6 also finds the IPv6 socket that has IPv4 addresses. */
void peer_request_make(struct peer_request *r, int family, const struct net_addr *local,
                       const struct net_addr *remote);
/* A dump of no socket at all, which succeeds only where the kernel has tcp_diag. */
void peer_request_probe(struct peer_request *r);
/* Return 0 with the owner of the socket asked for, -ENOENT if there is none, another -errno if the
 * kernel reported one, -EPROTO for anything else. */
int peer_answer_read(const void *bytes, size_t n, const struct peer_request *asked, uid_t *ret);
/* Whether these are bytes of the answer to this request, and not to an earlier one. */
bool peer_answer_is_of(const void *bytes, size_t n, const struct peer_request *asked);
bool peer_answer_probed(const void *bytes, size_t n);

void peer_line_make(struct peer_line *ret, int family, const struct net_addr *local,
                    const struct net_addr *remote);
/* Return 1 for the line of another socket, else 0 with its owner, or -ENOENT if its program has
 * closed it. */
int peer_line_read(const struct peer_line *want, const char *line, uid_t *ret);

#endif
