/* Accept connections and hold them until they are authenticated. Any user may connect and send
 * nothing, so the number of unproven connections is bounded: if the bound is reached, the source
 * with the most connections loses its oldest one (net/unproven.h). Some descriptors remain for the
 * rest of the program. net/link bounds the resources of each handshake. */
#ifndef DD_NET_HANDSHAKE_POOL_H
#define DD_NET_HANDSHAKE_POOL_H

#include "net/link.h"
#include "net/unproven.h"

struct handshake_pool_cfg {
    struct event_base *base;
    struct link_accept_cfg accept; /* `shared` is ignored; the pointers in it are borrowed */
    int fd;                        /* listening, non-blocking; borrowed */
    int receive;                   /* SO_RCVBUF of a connection; 0: the kernel's default */
    size_t most;                   /* limit of unproven connections */
    uint64_t max_age_ns;           /* of an unproven connection; 0: the timeout of `accept` alone */
    /* Takes fd, a new connection. NULL: the pool calls handshake_pool_start() for each. */
    void (*on_connection)(void *arg, int fd);
    void (*on_link)(void *arg, struct link *l); /* takes l, which waits for link_set_cb() */
    /* A handshake has failed for which link_accept_is_suspect() is true; already logged. NULL:
     * ignored. */
    void (*on_refused)(void *arg, const struct net_addr *from, const char *why);
    void *arg;
};

struct handshake_pool;

int handshake_pool_new(struct handshake_pool **ret, const struct handshake_pool_cfg *cfg,
                       struct dd_err *err);
/* NULL does nothing. Not allowed inside on_link. */
void handshake_pool_free(struct handshake_pool *p);
/* Create the TLS context now, including everything that OpenSSL loads for it, and start the thread
 * that makes MUNGE credentials. */
int handshake_pool_prepare(struct handshake_pool *p, struct dd_err *err);
/* Take fd, a connection whose first byte is HELLO_FIRST_BYTE. foreign: another user is known to own
 * the connection. */
void handshake_pool_start(struct handshake_pool *p, int fd, bool foreign);
/* Count a connection that waits for something other than a handshake, until unproven_remove(). The
 * pool may call u->evict. 0 or -ENOMEM. */
int handshake_pool_hold(struct handshake_pool *p, struct unproven *u, int fd);

#endif
