/* Shared by the files of the engine. */
#ifndef DD_STORE_ENGINE_INNER_H
#define DD_STORE_ENGINE_INNER_H

#include "store/hash.h"
#include "store/lease.h"

struct store_engine {
    struct store_account account;
    struct store_table names;
    size_t max_value;
    size_t keys;
    size_t waiters;
    TAILQ_HEAD(, store_waiter) released;
    struct store_holder **holders; /* [holders_n] by id; NULL: removed */
    size_t holders_n;
};

/* Allocate nodes for n names; w is waiting from then on. */
int store_alloc_nodes(struct store_engine *e, struct store_waiter *w, size_t n);
void store_add_node(struct store_waiter *w, struct store_entry *en);
void store_forget_nodes(struct store_engine *e, struct store_waiter *w); /* ends the wait */

/* Wake the waiters for the name to exist. */
void store_wake_waiters(struct store_engine *e, struct store_entry *en);
/* Also wake the waiters of a barrier, which treat any write to its key as its end. */
void store_wake_all(struct store_engine *e, struct store_entry *en);
/* In lease.c. _written is called after a key was created or changed, _deleted before a key is
 * deleted, and _clear before all keys are deleted. */
void store_lease_written(struct store_engine *e, struct store_entry *en);
void store_lease_deleted(struct store_engine *e, struct store_entry *en);
void store_holders_clear(struct store_engine *e);
/* Release one waiter for an item of a queue; skip waiters that also need other names. */
void store_wake_one(struct store_engine *e, struct store_entry *en);

#endif
