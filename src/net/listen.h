/* Listening sockets. */
#ifndef DD_NET_LISTEN_H
#define DD_NET_LISTEN_H

#include "base/err.h"
#include "net/addr.h"

#include <stdbool.h>
#include <sys/types.h>

/* Bind and listen at the first free port. addr "" or NULL: all addresses, IPv6 and IPv4 on one
 * socket if the kernel has IPv6, else IPv4. Return the close-on-exec, non-blocking fd and set
 * *ret_port. -EADDRINUSE: no port is free; the message names the ports and, if /proc shows it, the
 * program that holds one. */
int net_listen(const char *addr, const uint16_t *ports, size_t n, uint16_t *ret_port,
               struct dd_err *err);

/* The socket option that a server must set to listen on a reserved port. It determines which users'
 * servers the kernel admits there. */
enum net_reserve {
    NET_RESERVE_PORT, /* SO_REUSEPORT, with or without SO_REUSEADDR: servers of this user alone */
    NET_RESERVE_ADDR, /* SO_REUSEADDR: servers of every user */
};

/* Reserve a port that the kernel chooses: bind it on all addresses, without listening. 0 or -errno.
 * Src: measured on Linux 6.18 (tests/unit/test_net_listen.c has the whole matrix);
 * inet_csk_bind_conflict() has compared the effective uids of sockets with SO_REUSEPORT since Linux
 * 3.9, and has never done so for SO_REUSEADDR. */
int net_reserve(enum net_reserve how, int *ret_fd, uint16_t *ret_port);
/* True if another user listens on one of these ports, at any address; sets *ret_port and *ret_uid.
 * Reads the list of all sockets in /proc once: slow, use on failure only. */
bool net_ports_taken(const uint16_t *ports, size_t n, uint16_t *ret_port, uid_t *ret_uid);

#endif
