/* Listening sockets. */
#ifndef DD_NET_LISTEN_H
#define DD_NET_LISTEN_H

#include "base/err.h"
#include "net/addr.h"

/* Binds and listens on `addr` ("" or NULL: every address, IPv6 and IPv4 on one socket where the
 * kernel has IPv6, else IPv4) at the first of the ports that is free; returns the close-on-exec,
 * non-blocking fd and the port. -EADDRINUSE: none was free; the sentence names the ports and, where
 * /proc tells, the program that holds one. */
int net_listen(const char *addr, const uint16_t *ports, size_t n, uint16_t *ret_port,
               struct dd_err *err);

/* Binds and does not listen, at every address, on a port of the kernel's choice: nobody gets it by
 * chance, and a server that sets SO_REUSEADDR may listen there. 0 or -errno. */
int net_reserve(int *ret_fd, uint16_t *ret_port);

#endif
