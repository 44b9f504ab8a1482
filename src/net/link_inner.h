/* Shared by the files that implement links. */
#ifndef DD_NET_LINK_INNER_H
#define DD_NET_LINK_INNER_H

#include "base/buf.h"
#include "net/link.h"

struct bufferevent;

/* Make a link from an open bufferevent, which it takes on success. Nothing is read before
 * link_set_cb(). */
int link_of_bev(struct link **ret, struct bufferevent *bev, const char *node, struct dd_err *err);

void link_tune_socket(int fd); /* sets TCP options; no effect on other sockets */

/* Read more of the hello, and no byte after it. > 0: data was read; 0: none available yet; < 0: the
 * connection has ended. */
int link_hello_read(int fd, struct dd_buf *in);
/* Send a hello; it always fits into the buffer of a new socket. */
int link_hello_send(int fd, const struct dd_buf *out);

#endif
