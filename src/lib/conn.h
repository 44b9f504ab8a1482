/* A connection to the store of the round. It carries one exchange (request and reply) at a time. */
#ifndef DD_LIB_CONN_H
#define DD_LIB_CONN_H

#include "base/err.h"
#include "lib/c10d_wire.h"

#include <sys/socket.h>

struct conn {
    int fd;
    struct conn *next; /* link in the list of idle connections */
};

struct conn_addr {
    struct sockaddr_storage sa;
    socklen_t len;
    char text[300]; /* "ADDRESS port PORT", for messages */
};

/* A deadline is a time in nanoseconds of CLOCK_MONOTONIC; UINT64_MAX is never. */
uint64_t deadline_in(int timeout_ms);
void deadline_sleep(uint64_t deadline);
int deadline_poll(int fd, short events, uint64_t deadline); /* 0: ready; -ETIMEDOUT */

int conn_addr(struct conn_addr *ret, const char *host, const char *port, struct dd_err *err);

/* Connect and do the handshake. -ETIMEDOUT; -ECONNREFUSED: refused for one second, or until an
 * earlier deadline; -EACCES: the connection was lost during the handshake, or refused by this
 * machine; -EPROTO: the server is not a store. */
int conn_open(struct conn **ret, const struct conn_addr *a, uint64_t deadline, struct dd_err *err);
void conn_free(struct conn *c);

/* Continue the exchange without blocking. 1: the reply is complete; 0: poll for *events;
 * -ECANCELED: the store has closed the connection; -EPROTO, -ENOMEM, -EMSGSIZE. *sent counts the
 * bytes of w->out sent so far, initially 0. After a failure the connection is unusable. */
int conn_step(struct conn *c, struct wire *w, size_t *sent, short *events);
/* Run the exchange to its end. Also -ETIMEDOUT. */
int conn_call(struct conn *c, struct wire *w, uint64_t deadline);

#endif
