/* The keys that requests name most often, in bounded memory. Pure.
 *
 * Space-saving: a key that is not among the kept ones takes the place of the one with the least
 * count and continues that count. So a count is never too small, and too large by at most `over`;
 * a key with more than 1/HOT_KEYS_KEPT of all requests is always kept. Src: Metwally, Agrawal, El
 * Abbadi, "Efficient computation of frequent and top-k elements in data streams" (2005). */
#ifndef DD_STORE_HOT_KEYS_H
#define DD_STORE_HOT_KEYS_H

#include "store/blob.h"
#include "store/siphash.h"

enum { HOT_KEYS_KEPT = 64, HOT_KEYS_SHOWN = 20, HOT_KEY_MAX = 200 };

struct hot_key {
    uint64_t n, over;               /* count, and the maximum by which it may be too large */
    size_t len;                     /* bytes of the whole key */
    unsigned char key[HOT_KEY_MAX]; /* first bytes of the key */
};

/* All zero at first except for the seed, which is random. */
struct hot_keys {
    unsigned char seed[DD_SIPHASH_SEED];
    size_t n;
    uint64_t hashes[HOT_KEYS_KEPT];
    struct hot_key v[HOT_KEYS_KEPT];
};

void hot_keys_add(struct hot_keys *h, struct store_bytes key);
/* List the keys with the largest counts, the largest first, lent. Return the number of keys. */
size_t hot_keys_top(const struct hot_keys *h, const struct hot_key *ret[HOT_KEYS_SHOWN]);

#endif
