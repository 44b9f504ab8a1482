/* The hash table of the store's names: internal to the engine. */
#ifndef DD_STORE_HASH_H
#define DD_STORE_HASH_H

#include "store/engine.h"

struct store_wait_node {
    TAILQ_ENTRY(store_wait_node) link;
    struct store_entry *entry; /* NULL once the name exists */
    struct store_waiter *waiter;
};

TAILQ_HEAD(store_wait_nodes, store_wait_node);

struct store_item { /* an item of a queue */
    STAILQ_ENTRY(store_item) link;
    struct store_value value;
};

struct store_lease;

/* A name: a key, a queue, or a name that has only waiters. */
struct store_entry {
    struct store_entry *next; /* next in the bucket */
    uint64_t hash;
    struct store_value value;
    struct store_wait_nodes waiters;  /* waits for the name to exist */
    struct store_wait_nodes barriers; /* waits for a barrier to complete */
    LIST_HEAD(, store_waiter) called; /* waiters released by a push, without a reply yet */
    STAILQ_HEAD(, store_item) queue;
    size_t queue_len;
    size_t key_len;
    struct store_lease *lease; /* store/lease.h; NULL: no node has asked for the name */
    bool is_key;
    unsigned char key[];
};

struct store_table {
    struct store_account *account;
    unsigned char seed[DD_SIPHASH_SEED];
    struct store_entry **buckets;
    size_t mask; /* number of buckets - 1 */
    size_t n;
};

int store_table_init(struct store_table *t, struct store_account *account,
                     const unsigned char *seed); /* 0 or -ENOMEM */
void store_table_done(struct store_table *t);    /* the table must be empty */
void store_table_shrink(
    struct store_table *t); /* back to the initial size; the table must be empty */

struct store_entry *store_table_find(const struct store_table *t, struct store_bytes key);
/* Find or create a name. 0, -ENOSPC or -ENOMEM. */
int store_table_get(struct store_table *t, struct store_bytes key, struct store_entry **ret);
/* Free a name that is no key, has no queue, no waiters and no lease. */
void store_table_drop_unused(struct store_table *t, struct store_entry *en);
/* Remove and return any name; NULL if the table is empty. *from: the search begins at this bucket,
 * 0 at first. The caller frees the name with _free. */
struct store_entry *store_table_pop(struct store_table *t, size_t *from);
void store_table_free(struct store_table *t, struct store_entry *en);

/* In lease.c: whether nodes hold or wait for a lease; free an unused one. */
bool store_lease_in_use(const struct store_entry *en);
void store_lease_free(struct store_account *account, struct store_entry *en);

/* True if the key exists or the queue is not empty. */
static inline bool store_entry_exists(const struct store_entry *en)
{
    return en != NULL && (en->is_key || en->queue_len > 0);
}

#endif
