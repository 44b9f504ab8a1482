/* Accepts connections and keeps them until they have proved themselves. Any user may connect and
 * send nothing: the number of unproven connections is bounded, and when one has to make room, the
 * source with the most of them loses its oldest (net/unproven.h). What each handshake may take is
 * bounded by net/link. */
#ifndef DD_NET_HANDSHAKE_POOL_H
#define DD_NET_HANDSHAKE_POOL_H

#include "net/link.h"
#include "net/unproven.h"

struct handshake_pool_cfg {
    struct event_base *base;
    struct link_accept_cfg accept; /* `shared` is ignored; what it points to is borrowed */
    int fd;                        /* listening, non-blocking; borrowed */
    int receive;                   /* SO_RCVBUF of a connection; 0: the kernel's default */
    int fds_reserved; /* descriptors that accepted connections leave to the rest of the program */
    size_t most;      /* unproven connections */
    uint64_t max_age_ns; /* of an unproven connection; 0: the timeout of `accept` alone */
    /* Takes fd, a new connection. NULL: each is given to handshake_pool_start(). */
    void (*on_connection)(void *arg, int fd);
    void (*on_link)(void *arg, struct link *l); /* takes l, which waits for link_set_cb() */
    /* The peer did not speak as a node of this job does; already logged. NULL: not wanted. */
    void (*on_refused)(void *arg, const struct net_addr *from, const char *why);
    void *arg;
};

struct handshake_pool;

int handshake_pool_new(struct handshake_pool **ret, const struct handshake_pool_cfg *cfg,
                       struct dd_err *err);
void handshake_pool_free(struct handshake_pool *p); /* NULL does nothing; not within on_link */
/* Makes the TLS context now, with all that OpenSSL loads for it. */
int handshake_pool_prepare(struct handshake_pool *p, struct dd_err *err);
/* Takes fd, a connection whose first byte is HELLO_FIRST_BYTE. foreign: it is known to be another
 * user's. */
void handshake_pool_start(struct handshake_pool *p, int fd, bool foreign);
/* Counts a connection that waits for something other than a handshake; unproven_remove() ends
 * that, and the pool calls u->evict. 0 or -ENOMEM. */
int handshake_pool_hold(struct handshake_pool *p, struct unproven *u, int fd);

#endif
