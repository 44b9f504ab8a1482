/* A hash table of the hosts of addresses; ports are ignored. An entry is part of the object that is
 * looked up. Peers choose their addresses and may make them collide: a look-up then takes as long
 * as in a list. No I/O. */
#ifndef DD_NET_ADDR_TABLE_H
#define DD_NET_ADDR_TABLE_H

#include "net/addr.h"

#include <sys/queue.h>

struct addr_entry {
    LIST_ENTRY(addr_entry) entry;
    struct net_addr addr; /* len 0: unknown; all unknown ones are one host */
};

LIST_HEAD(addr_bucket, addr_entry);

/* All zero: empty. */
struct addr_table {
    struct addr_bucket *buckets;
    size_t nbuckets, n;
};

/* Add e, whose addr is set. 0 or -ENOMEM. */
int addr_table_add(struct addr_table *t, struct addr_entry *e);
void addr_table_remove(struct addr_table *t, struct addr_entry *e);
/* Return an entry of the same host as a; NULL: none. */
struct addr_entry *addr_table_find(const struct addr_table *t, const struct net_addr *a);
void addr_table_done(struct addr_table *t); /* the table is empty again; entries are not freed */

#endif
