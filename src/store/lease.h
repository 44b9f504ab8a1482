/* Leases: copies of values that other nodes keep and answer from, and the names that they wait
 * for. Part of the engine. Pure.
 *
 * A node asks for a name (store_lease_ask). It is sent the value once the key exists, and holds
 * a lease on it from then on: the value changes only after the node has received STORE_RECALL
 * and answered it (store_lease_answered). A caller that will change a key calls
 * store_lease_recall() before, and waits while that returns 1. So a value that a node reads from
 * its copy is the one that the engine has at that moment.
 *
 * A key that was changed under a lease gets no further ones until it is deleted: it is not a
 * write-once key. A node that asks for such a key, for a queue or for a large value gets
 * STORE_EACH: each of its clients must ask for itself. The same holds for a name that becomes a
 * queue, since a push releases one waiter and not one node. */
#ifndef DD_STORE_LEASE_H
#define DD_STORE_LEASE_H

#include "store/engine.h"

enum { STORE_LEASE_VALUE_MAX = 256 * 1024 }; /* bytes of a value that is sent with a lease */

enum store_lease_news {
    STORE_VALUE,  /* the key exists, with this value */
    STORE_EACH,   /* no lease */
    STORE_RECALL, /* drop the copy, and answer */
};

struct store_recall;

/* A node; part of the caller's object. All zero: not added. */
struct store_holder {
    struct store_engine *engine; /* NULL: not added */
    uint32_t id;
    STAILQ_HEAD(, store_recall) recalls; /* not yet answered by the node, oldest first */
    /* value: only with STORE_VALUE. Must not call the engine. */
    void (*tell)(struct store_holder *h, enum store_lease_news news, struct store_bytes key,
                 const struct store_value *value);
};

int store_holder_add(struct store_engine *e, struct store_holder *h); /* 0 or -ENOMEM */
/* Remove the holder; its recalls count as answered. True if changes that wait may be possible now.
 */
bool store_holder_remove(struct store_holder *h);

void store_lease_ask(struct store_holder *h, struct store_bytes key);
/* Recall the leases on a key that is about to be changed; with push, also those of nodes that wait
 * for a name that is about to become a queue. 0: none is left; 1: some have not answered yet;
 * -ENOMEM. */
int store_lease_recall(struct store_engine *e, struct store_bytes key, bool push);
/* The holder has answered its oldest recall. True if changes that wait may be possible now. */
bool store_lease_answered(struct store_holder *h);

#endif
