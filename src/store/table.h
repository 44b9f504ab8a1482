/* The names of the store in a hash table: inner part of the engine. */
#ifndef DD_STORE_TABLE_H
#define DD_STORE_TABLE_H

#include "store/engine.h"

struct store_wait_node {
    TAILQ_ENTRY(store_wait_node) link;
    struct store_entry *entry; /* NULL once the name exists */
    struct store_waiter *waiter;
};

TAILQ_HEAD(store_wait_nodes, store_wait_node);

struct store_item {
    STAILQ_ENTRY(store_item) link;
    struct store_value value;
};

/* A name: a key, a queue, or only something that somebody waits for. */
struct store_entry {
    struct store_entry *next; /* in its bucket */
    uint64_t hash;
    struct store_value value;
    struct store_wait_nodes waiters;  /* for the name to exist */
    struct store_wait_nodes barriers; /* for others to arrive */
    LIST_HEAD(, store_waiter) called; /* by a push, and not heard of since */
    STAILQ_HEAD(, store_item) queue;
    size_t queue_len;
    size_t key_len;
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
void store_table_done(struct store_table *t);    /* it is empty */
void store_table_shrink(struct store_table *t);  /* to the size at the start; it is empty */

struct store_entry *store_table_find(const struct store_table *t, struct store_bytes key);
/* Finds or makes it. 0, -ENOSPC or -ENOMEM. */
int store_table_get(struct store_table *t, struct store_bytes key, struct store_entry **ret);
/* Frees a name that is no key, no queue, and not waited for. */
void store_table_drop_unused(struct store_table *t, struct store_entry *en);
/* Takes any name out; NULL when the table is empty. The caller frees it with _free. */
struct store_entry *store_table_pop(struct store_table *t, size_t *from);
void store_table_free(struct store_table *t, struct store_entry *en);

/* As a key, or as a queue that is not empty. */
static inline bool store_entry_exists(const struct store_entry *en)
{
    return en != NULL && (en->is_key || en->queue_len > 0);
}

#endif
