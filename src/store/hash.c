#include "store/hash.h"

#include <errno.h>
#include <stdlib.h>

enum { FIRST_BUCKETS = 64 };

int store_table_init(struct store_table *t, struct store_account *account,
                     const unsigned char *seed)
{
    t->account = account;
    memcpy(t->seed, seed, sizeof(t->seed));
    t->mask = FIRST_BUCKETS - 1;
    t->n = 0;
    t->buckets = calloc(FIRST_BUCKETS, sizeof(*t->buckets));
    return t->buckets != NULL ? 0 : -ENOMEM;
}

void store_table_done(struct store_table *t)
{
    free(t->buckets);
    t->buckets = NULL;
}

void store_table_shrink(struct store_table *t)
{
    size_t n = t->mask + 1;
    struct store_entry **buckets = n > FIRST_BUCKETS ? calloc(FIRST_BUCKETS, sizeof(*buckets))
                                                     : NULL;
    if (buckets == NULL)
        return;
    free(t->buckets);
    t->buckets = buckets;
    t->mask = FIRST_BUCKETS - 1;
    store_account_give(t->account, (n - FIRST_BUCKETS) * sizeof(*buckets));
}

static struct store_entry **slot(const struct store_table *t, struct store_bytes key, uint64_t hash)
{
    struct store_entry **at = &t->buckets[hash & t->mask];
    for (; *at != NULL; at = &(*at)->next) {
        const struct store_entry *en = *at;
        if (en->hash == hash && en->key_len == key.n &&
            (key.n == 0 || memcmp(en->key, key.p, key.n) == 0))
            break;
    }
    return at;
}

struct store_entry *store_table_find(const struct store_table *t, struct store_bytes key)
{
    return *slot(t, key, dd_siphash13(t->seed, key.p, key.n));
}

/* Double the table; without memory for that, look-ups only become slower. */
static void store_table_grow(struct store_table *t)
{
    size_t n = (t->mask + 1) * 2;
    if (store_account_take(t->account, n / 2 * sizeof(*t->buckets)) < 0)
        return;
    struct store_entry **buckets = calloc(n, sizeof(*buckets));
    if (buckets == NULL) {
        store_account_give(t->account, n / 2 * sizeof(*t->buckets));
        return;
    }
    for (size_t i = 0; i <= t->mask; i++)
        for (struct store_entry *en = t->buckets[i], *next; en != NULL; en = next) {
            next = en->next;
            en->next = buckets[en->hash & (n - 1)];
            buckets[en->hash & (n - 1)] = en;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->mask = n - 1;
}

static int store_table_make(struct store_table *t, struct store_bytes key, uint64_t hash,
                            struct store_entry **ret)
{
    int rc = store_account_take(t->account, sizeof(**ret) + key.n);
    if (rc < 0)
        return rc;
    struct store_entry *en = malloc(sizeof(*en) + key.n);
    if (en == NULL) {
        store_account_give(t->account, sizeof(*en) + key.n);
        return -ENOMEM;
    }
    *en = (struct store_entry){.hash = hash, .key_len = key.n};
    TAILQ_INIT(&en->waiters);
    TAILQ_INIT(&en->barriers);
    LIST_INIT(&en->called);
    STAILQ_INIT(&en->queue);
    if (key.n > 0)
        memcpy(en->key, key.p, key.n);
    *ret = en;
    return 0;
}

int store_table_get(struct store_table *t, struct store_bytes key, struct store_entry **ret)
{
    uint64_t hash = dd_siphash13(t->seed, key.p, key.n);
    struct store_entry **at = slot(t, key, hash);
    if (*at == NULL) {
        int rc = store_table_make(t, key, hash, at);
        if (rc < 0)
            return rc;
        *ret = *at;
        if (++t->n > t->mask)
            store_table_grow(t);
        return 0;
    }
    *ret = *at;
    return 0;
}

void store_table_free(struct store_table *t, struct store_entry *en)
{
    store_lease_free(t->account, en);
    store_account_give(t->account, sizeof(*en) + en->key_len);
    free(en);
}

void store_table_drop_unused(struct store_table *t, struct store_entry *en)
{
    if (store_entry_exists(en) || !TAILQ_EMPTY(&en->waiters) || !TAILQ_EMPTY(&en->barriers) ||
        !LIST_EMPTY(&en->called) || store_lease_in_use(en))
        return;
    struct store_entry **at = &t->buckets[en->hash & t->mask];
    while (*at != en)
        at = &(*at)->next;
    *at = en->next;
    t->n--;
    store_table_free(t, en);
}

struct store_entry *store_table_pop(struct store_table *t, size_t *from)
{
    for (; *from <= t->mask; ++*from) {
        struct store_entry *en = t->buckets[*from];
        if (en == NULL)
            continue;
        t->buckets[*from] = en->next;
        t->n--;
        return en;
    }
    return NULL;
}
