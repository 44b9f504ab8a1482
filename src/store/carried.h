/* The daemon's side of relays: connections of workers that a node's link carries, and the leases of
 * that node. Uses no sockets and no clock.
 *
 * A carried connection is a c10d connection like any other: its requests are executed in their
 * order, its waits and barriers count as one client's, and it ends with its worker's connection. */
#ifndef DD_STORE_CARRIED_H
#define DD_STORE_CARRIED_H

#include "store/c10d.h"
#include "store/lease.h"

struct store_carrier; /* the connections and leases of one node */

struct store_carrier_cfg {
    /* Send the data of a FRAME_STORE frame to the node. A failure ends the node's link, so nothing
     * is sent again. Must not call functions of this file. */
    void (*send)(void *arg, const void *p, size_t n);
    /* Call store_carriers_continue() soon, but not from within this callback. */
    void (*soon)(void *soon_arg);
    void *arg, *soon_arg;
};

/* Return 0 or -ENOMEM. */
int store_carrier_new(struct store_carrier **ret, struct c10d *c10d,
                      const struct store_carrier_cfg *cfg);
void store_carrier_free(struct store_carrier *k); /* NULL does nothing */
/* Take a message from the node. round: the round that runs; messages of other rounds are ignored.
 * Return 0, or < 0 with a message: the node does not follow the protocol, or -ENOMEM. */
int store_carrier_take(struct store_carrier *k, uint32_t round, const void *p, size_t n,
                       struct dd_err *err);
/* Close the relay's connections, and ignore its messages until the next BEGIN. */
void store_carrier_reset(struct store_carrier *k);

/* Give each busy connection one turn; cfg.soon has been called if some are busy afterwards. */
void store_carriers_continue(struct c10d *c10d);
void store_carriers_reset(struct c10d *c10d); /* resets all carriers */
/* Close the connections that wait for a key with this prefix. */
void store_carriers_end_waits(struct c10d *c10d, const char *prefix);
size_t store_carriers_conns(const struct c10d *c10d);

#endif
