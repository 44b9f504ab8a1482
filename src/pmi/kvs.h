/* The key-value space of one round: workers of this node put values, and nodes exchange the new
 * ones at each barrier. No I/O. */
#ifndef DD_PMI_KVS_H
#define DD_PMI_KVS_H

#include "base/buf.h"
#include "base/err.h"

struct kvs;

enum {
    KVS_PART_MAX = 16 << 20,
    KVS_MAX = 256 << 20
}; /* bytes exchanged at one barrier, and in total */

/* seed: 16 random bytes. 0 or -ENOMEM. */
int kvs_new(struct kvs **ret, const unsigned char *seed);
/* Return the value, valid until the next put; NULL: none. */
const char *kvs_get(const struct kvs *k, const char *key);
/* Set a value, replacing an old one. 0, -ENOMEM, or -EMSGSIZE: full. */
int kvs_put(struct kvs *k, const char *key,
            const char *value); /* sends the value at the next barrier */
int kvs_set(struct kvs *k, const char *key,
            const char *value); /* sends nothing: every node sets the value itself */

/* Return the values put since the last call of kvs_news_told(), valid until the next put. */
const void *kvs_news(const struct kvs *k, size_t *ret_len);
void kvs_news_told(struct kvs *k);
/* Store the values that another node has put. -EPROTO, -EMSGSIZE or -ENOMEM with a message; values
 * before the error are kept. */
int kvs_take(struct kvs *k, const void *p, size_t n, struct dd_err *err);

void kvs_free(struct kvs *k);

#endif
