/* Unix sockets in the abstract namespace, by which a user's commands reach the user's agents on the
 * same machine. A name disappears with its process. The kernel reports the uid of the peer, so no
 * secret is needed; the name proves nothing. Src: unix(7), abstract sockets, SO_PEERCRED. */
#ifndef DD_NET_LOCAL_SOCKET_H
#define DD_NET_LOCAL_SOCKET_H

#include "base/err.h"

#include <stddef.h>

/* Create a listening socket with a name derived from this process. */
int local_socket_listen(int *ret_fd, struct dd_err *err);
/* Accept the next connection of this user or root. -EAGAIN: none is pending; -EACCES: a connection
 * of another user was closed. */
int local_socket_accept(int listen_fd);
/* Connect to all such sockets of this user on this machine; the caller closes the descriptors and
 * frees the array. Other users may listen under any number of similar names: each costs one
 * connection attempt, and none hides a socket of this user whose queue has room. *ret_busy: sockets
 * of unknown owner whose queues stayed full. 0 or -errno. */
int local_socket_connect(int **ret_fds, size_t *ret_n, size_t *ret_busy);

#endif
