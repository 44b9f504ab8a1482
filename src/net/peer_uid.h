/* Find the owner of the socket at the other end of a TCP connection. Src: sock_diag(7), tcp(7),
 * Linux.
 *
 * The kernel answers for a pair of addresses and ports, not for a connection, and another process
 * may have the same pair a moment later. Bytes of connection S belong to the user that the kernel
 * named only if S is still connected (net_peer_is_connected) after the answer was given and before
 * the first byte is read:
 *
 * - A connection that was reset or timed out stays so. If S is connected now, it was connected when
 * the kernel looked.
 * - The socket X that the kernel found was ESTABLISHED. X reached that state by a handshake with
 * this port. While a kernel has S, it answers no SYN of the same pair with a SYN-ACK, only with an
 * ACK that makes the caller reset S (RFC 9293, 3.10.7.4; RFC 5961, 4). So X is the other end of S:
 * a second X would have ended S.
 * - This holds too where a RST was lost, where the machine or the network namespace of the first
 * caller vanished, and where the first caller has closed (S in CLOSE_WAIT): S is then half open,
 * and the next SYN ends it.
 * - A socket in FIN-WAIT, in TIME-WAIT, without an inode (closed by its program), or listening is
 * not ESTABLISHED or has no owner, and counts as none.
 * - TCP_REPAIR, raw sockets and fchown(2) of a socket need a capability in the namespace of the
 * victim's network.
 *
 * Not covered: a host that translates addresses for others (a container or machine behind NAT of a
 * node has that node's address, and its port may be one that a process of the node uses itself);
 * an attacker who can read or write packets on the network; a SYN cookie answered by a segment that
 * a later RST and SYN have overtaken. */
#ifndef DD_NET_PEER_UID_H
#define DD_NET_PEER_UID_H

#include "net/addr.h"

#include <sys/types.h>

/* Keeps one netlink socket open, so that queries work even if no descriptor is free. */
struct net_peer;

int net_peer_new(struct net_peer **ret); /* 0 or -ENOMEM */
void net_peer_free(struct net_peer *p);  /* NULL does nothing */

/* Return the uid that owns the TCP socket of this machine bound to `local` and connected to
 * `remote`. -ENOENT: there is none; other -errno: the kernel cannot be queried. Costs one netlink
 * message, a few microseconds; where the kernel has no tcp_diag, 2 us for each socket of the
 * network namespace: a server that other users can call asks through an owner_queue instead. */
int net_peer_uid(struct net_peer *p, const struct net_addr *local, const struct net_addr *remote,
                 uid_t *ret);
/* 0: the owner is the uid of this process; -EPERM: the owner is *ret_uid; otherwise as
 * net_peer_uid(). */
int net_peer_own(struct net_peer *p, const struct net_addr *local, const struct net_addr *remote,
                 uid_t *ret_uid);
/* As net_peer_own(), but -EAGAIN if only the list of all sockets in /proc has the answer. */
int net_peer_own_quick(struct net_peer *p, const struct net_addr *local,
                       const struct net_addr *remote, uid_t *ret_uid);
/* Make the result of net_peer_own() from that of net_peer_uid(). */
int net_peer_judge(const struct net_peer *p, int rc, uid_t uid, uid_t *ret_uid);
/* As net_peer_own(), for the other end of an accepted connection, which is still connected when 0
 * is returned. -ENOTCONN: it is disconnected. */
int net_peer_own_fd(struct net_peer *p, int fd, uid_t *ret_uid);
/* True if the connection was neither reset nor timed out; the peer may have sent FIN. */
bool net_peer_is_connected(int fd);

#endif
