/* Where the workers meet that ddctl env speaks of: found by one look at this node, as nobody is
 * connected. */
#ifndef DD_CMD_DDCTL_MEET_H
#define DD_CMD_DDCTL_MEET_H

#include "net/addr.h"
#include "rdzv/place.h"

/* An address of the first node that others may use: loopback for a single node, else a numeric one
 * where the name leads to one, else the name. `said` goes before all. Gives *ret. */
int meet_find_addr(char **ret, const struct place *p, const struct alloc *a, const char *said,
                   struct dd_err *err);

/* The interfaces of workers of this node, which is the plan's. */
void meet_find_ifaces(struct net_worker_ifaces *ret, const struct plan *p);

#endif
