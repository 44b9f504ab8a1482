/* What the files of the engine share. */
#ifndef DD_STORE_INNER_H
#define DD_STORE_INNER_H

#include "store/table.h"

struct store_engine {
    struct store_account account;
    struct store_table names;
    size_t max_value;
    size_t keys;
    size_t waiters;
    TAILQ_HEAD(, store_waiter) released;
};

/* Nodes for n names; w waits from then on. */
int store_alloc_nodes(struct store_engine *e, struct store_waiter *w, size_t n);
void store_add_node(struct store_waiter *w, struct store_entry *en);
void store_forget_nodes(struct store_engine *e, struct store_waiter *w); /* waits no more */

/* Those who wait for the name to exist. */
void store_wake_waiters(struct store_engine *e, struct store_entry *en);
/* They and those of a barrier, which take any write to its key as the end of it. */
void store_wake_all(struct store_engine *e, struct store_entry *en);
/* An item of a queue releases one waiter; those who need other names too are passed over. */
void store_wake_one(struct store_engine *e, struct store_entry *en);

#endif
