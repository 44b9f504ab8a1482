/* The names of one round: put by the workers of this node, told to the other nodes at each barrier.
 * No I/O. */
#ifndef DD_PMI_KVS_H
#define DD_PMI_KVS_H

#include "base/buf.h"
#include "base/err.h"

struct kvs;

enum { KVS_PART_MAX = 16 << 20, KVS_MAX = 256 << 20 }; /* bytes told at one barrier, and in all */

/* seed: 16 random bytes. Gives *ret, or -ENOMEM. */
int kvs_new(struct kvs **ret, const unsigned char *seed);
/* NULL when there is none. Lent until the next put. */
const char *kvs_get(const struct kvs *k, const char *key);
/* 0, -ENOMEM, or -EMSGSIZE: no more room. A new value goes over the old one. */
int kvs_put(struct kvs *k, const char *key, const char *value); /* and told at the next barrier */
int kvs_set(struct kvs *k, const char *key, const char *value); /* everybody has it by himself */

/* What was put since the last time. Lent until the next put. */
const void *kvs_news(const struct kvs *k, size_t *ret_len);
void kvs_news_told(struct kvs *k);
/* Another node's news. -EPROTO with a sentence: what came before the fault is kept. */
int kvs_take(struct kvs *k, const void *p, size_t n, struct dd_err *err);

void kvs_free(struct kvs *k);

#endif
