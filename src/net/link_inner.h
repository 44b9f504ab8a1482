/* What the files of the link share. */
#ifndef DD_NET_LINK_INNER_H
#define DD_NET_LINK_INNER_H

#include "base/buf.h"
#include "net/link.h"

struct bufferevent;

/* Makes a link of an open bufferevent, which it takes (if it succeeds). Nothing is read before
 * link_set_cb(). */
int link_of_bev(struct link **ret, struct bufferevent *bev, const char *node, struct dd_err *err);

void link_tune_socket(int fd); /* TCP options of a link; other sockets are left alone */

/* Reads more of the hello, and no byte beyond it. > 0 something came, 0 nothing yet, negative: it
 * ended. */
int link_hello_read(int fd, struct dd_buf *in);
/* Sends a hello; it always fits the buffer of a fresh socket. */
int link_hello_send(int fd, const struct dd_buf *out);

#endif
