/* Addresses and interfaces of this machine. */
#ifndef DD_NET_ADDR_H
#define DD_NET_ADDR_H

#include "base/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* An IPv4 or IPv6 address with a port; IPv4 is always AF_INET here (mapped ones are unmapped). */
struct net_addr {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    };
    socklen_t len;
};

enum { NET_ADDR_TEXT = 64 };

int net_addr_parse(struct net_addr *ret, const char *numeric, uint16_t port); /* -EINVAL */
int net_addr_from_sockaddr(struct net_addr *ret, const struct sockaddr *sa, socklen_t len);
/* "10.0.0.1", "fd00::1" (no brackets, no port; a link-local one with %iface). Returns out. */
const char *net_addr_host(const struct net_addr *a, char out[NET_ADDR_TEXT]);
/* "10.0.0.1:80", "[fd00::1]:80". Returns out. */
const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT + 8]);
uint16_t net_addr_port(const struct net_addr *a);
void net_addr_set_port(struct net_addr *a, uint16_t port);
bool net_addr_is_loopback(const struct net_addr *a);                         /* 127/8, ::1 */
bool net_addr_same_host(const struct net_addr *a, const struct net_addr *b); /* ports ignored */

/* "host:port", "host", "[v6]:port", bare v6. host_size >= 256. *port = 0 when none is given. */
int net_split_hostport(const char *text, char *host, size_t host_size, uint16_t *port,
                       struct dd_err *err);

struct net_iface {
    char name[16];
    struct net_addr addr;
    bool up, loopback;
};
/* All addresses of all interfaces, in the kernel's order. Gives an array that the caller frees with
 * free(). */
int net_ifaces(struct net_iface **ret, size_t *ret_n, struct dd_err *err);
/* Name of the interface that holds this address into out, or -ENOENT. */
int net_iface_of(const struct net_addr *a, char out[16]);
/* The address of the interface that other machines may use: IPv4 before IPv6, none that is good on
 * the link alone. -ENOENT: it has none. Pure. */
int net_iface_addr(const struct net_iface *ifs, size_t n, const char *name, struct net_addr *ret);
/* Whether this node has that interface of --iface, with such an address. -EINVAL with a sentence.
 */
int net_iface_check(const char *name, struct dd_err *err);
/* Whether a connection that leaves through the interface comes to an end there within the time:
 * waits for it. 0, or -errno. */
int net_iface_reaches(const char *name, const struct net_addr *to, unsigned limit_ms);
/* The interface that NCCL takes by itself when NCCL_SOCKET_IFNAME is not set (Src: NCCL 2.23-2.30),
 * or -ENOENT. Pure. */
int net_iface_nccl_choice(const struct net_iface *ifs, size_t n, char out[16]);

/* The interfaces that a worker is given. */
struct net_worker_ifaces {
    char used[16]; /* "": not known */
    char nccl[16]; /* the same where NCCL would take another one by itself, else "" */
};
/* used: the one that the user names, or (named NULL) the one that holds this node's address among
 * the nodes of the job. alone: it has no other nodes. */
void net_worker_ifaces_find(struct net_worker_ifaces *ret, const char *named,
                            const struct net_addr *local, bool alone);

#endif
