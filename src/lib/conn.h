/* A connection to the store of the round, and one exchange on it at a time. */
#ifndef DD_LIB_CONN_H
#define DD_LIB_CONN_H

#include "base/err.h"
#include "lib/wire.h"

#include <sys/socket.h>

struct conn {
    int fd;
    struct conn *next; /* for the list of its owner */
};

struct conn_addr {
    struct sockaddr_storage sa;
    socklen_t len;
    char text[300]; /* "ADDRESS port PORT", for sentences */
};

/* A moment: nanoseconds of CLOCK_MONOTONIC; UINT64_MAX is never. */
uint64_t deadline_in(int timeout_ms);
void deadline_sleep(uint64_t deadline);
int deadline_poll(int fd, short events, uint64_t deadline); /* 0: something is there; -ETIMEDOUT */

int conn_addr(struct conn_addr *ret, const char *host, const char *port, struct dd_err *err);

/* Connects and shakes hands. -ETIMEDOUT, -ECONNREFUSED (for a second, whatever the deadline),
 * -EACCES (it closes at once), -EPROTO. */
int conn_open(struct conn **ret, const struct conn_addr *a, uint64_t deadline, struct dd_err *err);
void conn_free(struct conn *c);

/* As far as it goes without waiting. 1: the answer is there; 0: not yet, *events is what to poll
 * for; -ECANCELED: the other end has closed; -EPROTO, -ENOMEM, -EMSGSIZE. *sent counts the bytes of
 * w->out that are gone, 0 at first. After a failure the connection is of no more use. */
int conn_step(struct conn *c, struct wire *w, size_t *sent, short *events);
/* The same to the end. Also -ETIMEDOUT. */
int conn_call(struct conn *c, struct wire *w, uint64_t deadline);

#endif
