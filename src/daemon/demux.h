/* The one port: accepts connections, has their owner found out at once, and tells by the first byte
 * what they are. 0xdd is an agent's link, 0x00-0x1f a worker that speaks c10d; anything else is not
 * served.
 *
 * A connection that this user is known to have opened may be silent for ever. All others are
 * unproven (net/unproven.h): their number and their time are bounded, and some descriptors are kept
 * free of them and of workers. */
#ifndef DD_DAEMON_DOOR_H
#define DD_DAEMON_DOOR_H

#include "base/err.h"

struct daemon;
struct door;

/* Takes listen_fd, non-blocking. Gives *ret. */
int door_new(struct door **ret, struct daemon *d, int listen_fd, struct dd_err *err);
/* Closes workers' connections whose owner is still asked for: the round that they belong to is
 * over. */
void door_drop_workers(struct door *d);
void door_free(struct door *d); /* before admission: its connections ask there */

#endif
