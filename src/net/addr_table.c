#include "net/addr_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_FIRST = 16 };

/* A change of any bit of h changes about half of the bits of the result. */
static uint32_t mix(uint32_t h)
{
    h = (h ^ h >> 16) * 0x85ebca6bU;
    h = (h ^ h >> 13) * 0xc2b2ae35U;
    return h ^ h >> 16;
}

/* The scope of an IPv6 address is left out, because net_addr_same_host() may ignore it. */
static uint32_t addr_hash(const struct net_addr *a)
{
    uint32_t words[4] = {0};
    uint32_t h = a->len;
    if (a->len == 0)
        return 0;
    if (a->sa.sa_family == AF_INET)
        words[0] = a->in.sin_addr.s_addr;
    else
        memcpy(words, &a->in6.sin6_addr, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        h = mix(h ^ words[i]);
    return h;
}

static bool is_same(const struct net_addr *a, const struct net_addr *b)
{
    return a->len == 0 || b->len == 0 ? a->len == b->len : net_addr_same_host(a, b);
}

static struct addr_bucket *bucket_of(const struct addr_table *t, const struct net_addr *a)
{
    return &t->buckets[addr_hash(a) & (t->nbuckets - 1)];
}

static int addr_table_grow(struct addr_table *t)
{
    const struct addr_table old = *t;
    struct addr_table more = {.nbuckets = old.nbuckets > 0 ? old.nbuckets * 2 : BUCKETS_FIRST};
    more.buckets = calloc(more.nbuckets, sizeof(*more.buckets));
    if (more.buckets == NULL)
        return old.nbuckets > 0 ? 0 : -ENOMEM; /* longer chains still work */
    for (size_t i = 0; i < old.nbuckets; i++) {
        struct addr_entry *e;
        while ((e = LIST_FIRST(&old.buckets[i])) != NULL) {
            LIST_REMOVE(e, entry);
            LIST_INSERT_HEAD(bucket_of(&more, &e->addr), e, entry);
        }
    }
    more.n = old.n;
    free(old.buckets);
    *t = more;
    return 0;
}

int addr_table_add(struct addr_table *t, struct addr_entry *e)
{
    int rc = t->n >= t->nbuckets ? addr_table_grow(t) : 0;
    if (rc < 0)
        return rc;
    LIST_INSERT_HEAD(bucket_of(t, &e->addr), e, entry);
    t->n++;
    return 0;
}

void addr_table_remove(struct addr_table *t, struct addr_entry *e)
{
    LIST_REMOVE(e, entry);
    t->n--;
}

struct addr_entry *addr_table_find(const struct addr_table *t, const struct net_addr *a)
{
    struct addr_entry *e;
    if (t->nbuckets == 0)
        return NULL;
    LIST_FOREACH (e, bucket_of(t, a), entry)
        if (is_same(&e->addr, a))
            return e;
    return NULL;
}

void addr_table_done(struct addr_table *t)
{
    free(t->buckets);
    *t = (struct addr_table){0};
}
