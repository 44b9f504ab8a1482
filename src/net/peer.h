/* Whose socket is at the other end of a local TCP connection. Src: sock_diag(7), Linux. */
#ifndef DD_NET_PEER_H
#define DD_NET_PEER_H

#include "net/addr.h"

#include <sys/types.h>

/* The uid that owns the TCP socket of this machine bound to `local` and connected to `remote`.
 * -ENOENT: there is none; other -errno: the kernel cannot be asked. A few microseconds, one netlink
 * message. */
int net_peer_uid(const struct net_addr *local, const struct net_addr *remote, uid_t *ret);

#endif
