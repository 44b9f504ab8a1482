/* Where an agent can be spoken to by its own user on its own machine: a Unix socket without a file,
 * whose name ends with the process. The kernel says who is at the other end, so no secret is
 * needed; a name proves nothing. Src: unix(7), abstract sockets, SO_PEERCRED.
 */
#ifndef DD_NET_HERE_H
#define DD_NET_HERE_H

#include "base/err.h"

#include <stddef.h>

/* A listening socket under a name of this process. */
int net_here_listen(int *ret_fd, struct dd_err *err);
/* The next caller of this user, or root. -EAGAIN: there is none; -EACCES: it was another user, and
 * is gone. */
int net_here_accept(int listen_fd);
/* Connections to all such sockets of this user on this machine; the caller closes and frees them.
 * Any number of other users' sockets have names like that: each costs a connection, none hides one
 * of this user's. 0 or -errno. */
int net_here_connect(int **ret_fds, size_t *ret_n);

#endif
