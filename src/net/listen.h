/* Listening sockets. */
#ifndef DD_NET_LISTEN_H
#define DD_NET_LISTEN_H

#include "base/err.h"
#include "net/addr.h"

#include <stdbool.h>
#include <sys/types.h>

/* Binds and listens on `addr` ("" or NULL: every address, IPv6 and IPv4 on one socket where the
 * kernel has IPv6, else IPv4) at the first of the ports that is free; returns the close-on-exec,
 * non-blocking fd and the port. -EADDRINUSE: none was free; the sentence names the ports and, where
 * /proc tells, the program that holds one. */
int net_listen(const char *addr, const uint16_t *ports, size_t n, uint16_t *ret_port,
               struct dd_err *err);

/* What a server must set to listen on a reserved port, and which others the kernel lets in then. */
enum net_reserve {
    NET_RESERVE_PORT, /* SO_REUSEPORT, with or without SO_REUSEADDR: servers of this user alone */
    NET_RESERVE_ADDR, /* SO_REUSEADDR: servers of every user */
};

/* Binds and does not listen, at every address, on a port of the kernel's choice. 0 or -errno.
 * Src: measured on Linux 6.18 (tests/unit/test_net_listen.c has the whole matrix);
 * inet_csk_bind_conflict() has compared the effective uids of sockets with SO_REUSEPORT since
 * Linux 3.9, and has never done so for SO_REUSEADDR. */
int net_reserve(enum net_reserve how, int *ret_fd, uint16_t *ret_port);
/* Whether another user listens on that port, at whatever address, and which. Reads /proc: slow, for
 * failures only. */
bool net_port_taken(uint16_t port, uid_t *ret_uid);

#endif
