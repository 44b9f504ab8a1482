/* Network addresses, and the interfaces of this machine. */
#ifndef DD_NET_ADDR_H
#define DD_NET_ADDR_H

#include "base/err.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* An IPv4 or IPv6 address with a port. IPv4-mapped IPv6 addresses are stored as AF_INET. */
struct net_addr {
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    };
    socklen_t len; /* bytes of the address; 0: none */
};

enum { NET_ADDR_TEXT = 64 };

int net_addr_parse(struct net_addr *ret, const char *numeric, uint16_t port); /* 0 or -EINVAL */
int net_addr_from_sockaddr(struct net_addr *ret, const struct sockaddr *sa, socklen_t len);
/* Format as "10.0.0.1" or "fd00::1": no brackets, no port; link-local addresses end with %iface.
 * Return out. */
const char *net_addr_host(const struct net_addr *a, char out[NET_ADDR_TEXT]);
/* Format as "10.0.0.1:80" or "[fd00::1]:80". Return out. */
const char *net_addr_text(const struct net_addr *a, char out[NET_ADDR_TEXT + 8]);
uint16_t net_addr_port(const struct net_addr *a);
void net_addr_set_port(struct net_addr *a, uint16_t port);
bool net_addr_is_loopback(const struct net_addr *a);                         /* 127/8, ::1 */
bool net_addr_same_host(const struct net_addr *a, const struct net_addr *b); /* ports ignored */

/* Split "host:port", "host", "[v6]:port" or a bare IPv6 address. host_size >= 256. *port = 0 if the
 * text has no port. 0, or -EINVAL with a message. */
int net_split_hostport(const char *text, char *host, size_t host_size, uint16_t *port,
                       struct dd_err *err);

struct net_iface {
    char name[16];
    struct net_addr addr;
    bool up, loopback;
};
/* List all addresses of all interfaces, in the kernel's order. The caller frees the array with
 * free(). */
int net_ifaces(struct net_iface **ret, size_t *ret_n, struct dd_err *err);
/* Write the name of the interface that holds this address to out; -ENOENT: none does. */
int net_iface_of(const struct net_addr *a, char out[16]);
/* Find the address of the interface that other machines can reach: IPv4 before IPv6, never
 * link-local. -ENOENT: the interface has none. Pure. */
int net_iface_addr(const struct net_iface *ifs, size_t n, const char *name, struct net_addr *ret);
/* Check that this node has the interface named by --iface, with an address that other nodes can
 * reach. 0, -EINVAL (no such interface, or no such address) or another -errno, with a message. */
int net_iface_check(const char *name, struct dd_err *err);
/* Connect with a socket bound to this interface; name NULL: not bound. Return a non-blocking,
 * close-on-exec descriptor or -errno; -ETIMEDOUT after limit_ms. */
int net_iface_connect(const char *name, const struct net_addr *to, unsigned limit_ms);
/* Wait until a connection bound to the interface succeeds, or fails, or the limit expires. 0 or
 * -errno. */
int net_iface_reaches(const char *name, const struct net_addr *to, unsigned limit_ms);
/* Find the interface that NCCL chooses if NCCL_SOCKET_IFNAME is not set, and write its name to out.
 * 0, or -ENOENT: none. Pure. Src: NCCL 2.23-2.30. */
int net_iface_nccl_choice(const struct net_iface *ifs, size_t n, char out[16]);

/* The interfaces passed to the workers. */
struct net_worker_ifaces {
    char used[16]; /* "": unknown */
    char nccl[16]; /* `used` if NCCL would choose another interface by default, else "" */
};
/* Set `used` to `named`; if that is NULL, to the interface that holds `local`, this node's address
 * in the job. alone: the job has no other nodes. */
void net_worker_ifaces_find(struct net_worker_ifaces *ret, const char *named,
                            const struct net_addr *local, bool alone);

#endif
