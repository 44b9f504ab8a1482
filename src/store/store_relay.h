/* The relay of a node: the store as the node's workers see it. Uses no sockets and no clock.
 *
 * A relay is a role of a struct c10d, whose engine holds the copies on which this node has leases
 * (store/lease.h). Its connections are those of the workers. A request goes to the daemon, on a
 * connection of its worker's own (store/carried.h), unless it can be answered here:
 *
 * - GET, MULTI_GET, CHECK and WAIT for keys of which this node has copies;
 * - WAIT for one key: the node asks once, whatever the number of its clients that wait.
 *
 * Both only if all earlier requests of the client have been answered: a client must find what it
 * has set itself, and replies must keep their order. A client then finds what it would have found
 * at the daemon at some moment between its request and the reply. */
#ifndef DD_STORE_STORE_RELAY_H
#define DD_STORE_STORE_RELAY_H

#include "store/c10d.h"

struct store_relay_cfg {
    uint32_t round;
    /* Send the data of a FRAME_STORE frame to the daemon. A failure ends the link. */
    void (*send)(void *arg, const void *p, size_t n);
    void *arg;
    /* Send to a worker; its connection is not the one that is being fed. */
    void (*reply)(struct c10d_conn *c, const void *p, size_t n);
    void (*close)(struct c10d_conn *c); /* may call c10d_conn_done() */
};

/* Make c10d a relay; it must have no connection. 0 or -ENOMEM. */
int store_relay_new(struct store_relay **ret, struct c10d *c10d, const struct store_relay_cfg *cfg);
/* Inform the daemon that the relay is gone. Call it once all connections are closed. NULL does
 * nothing. */
void store_relay_free(struct store_relay *y);
/* Take a message of the daemon. 0, or < 0 with a message: the daemon violates the protocol. */
int store_relay_take(struct store_relay *y, const void *p, size_t n, struct dd_err *err);

struct store_relay_stats {
    uint64_t here, forwarded; /* requests answered by the relay, and by the daemon */
};
void store_relay_stats(const struct store_relay *y, struct store_relay_stats *ret);

#endif
