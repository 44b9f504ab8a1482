#include "store/hot_keys.h"

#include <stdlib.h>

/* Return the place of a new key: a free one, or that of the least count. */
static size_t hot_keys_place(struct hot_keys *h)
{
    size_t least = 0;
    if (h->n < HOT_KEYS_KEPT)
        return h->n++;
    for (size_t i = 1; i < HOT_KEYS_KEPT; i++)
        if (h->v[i].n < h->v[least].n)
            least = i;
    return least;
}

void hot_keys_add(struct hot_keys *h, struct store_bytes key)
{
    const uint64_t hash = dd_siphash13(h->seed, key.p, key.n);
    size_t i = 0;
    while (i < h->n && h->hashes[i] != hash)
        i++;
    if (i == h->n) {
        i = hot_keys_place(h);
        const uint64_t over = h->v[i].n;
        const size_t len = key.n < HOT_KEY_MAX ? key.n : HOT_KEY_MAX;
        h->hashes[i] = hash;
        h->v[i] = (struct hot_key){.n = over, .over = over, .len = key.n};
        if (len > 0)
            memcpy(h->v[i].key, key.p, len);
    }
    h->v[i].n++;
}

static int hot_keys_compare(const void *a, const void *b)
{
    const struct hot_key *x = *(const struct hot_key *const *)a;
    const struct hot_key *y = *(const struct hot_key *const *)b;
    return (x->n < y->n) - (x->n > y->n);
}

size_t hot_keys_top(const struct hot_keys *h, const struct hot_key *ret[HOT_KEYS_SHOWN])
{
    const struct hot_key *all[HOT_KEYS_KEPT];
    const size_t n = h->n < HOT_KEYS_SHOWN ? h->n : HOT_KEYS_SHOWN;
    for (size_t i = 0; i < h->n; i++)
        all[i] = &h->v[i];
    qsort(all, h->n, sizeof(all[0]), hot_keys_compare);
    memcpy(ret, all, n * sizeof(all[0]));
    return n;
}
