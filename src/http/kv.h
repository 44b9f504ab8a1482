/* Keys and values in scopes, as Horovod's rendezvous has them, and who waits for a key. Pure.
 *
 * Everything that a peer can make us keep is bounded by kv_limits. Values are counted from the time
 * that room for them is asked, and as long as anybody has them.
 */
#ifndef DD_HTTP_KV_H
#define DD_HTTP_KV_H

#include "base/auto.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

enum { KV_NAME_MAX = 512, KV_SEED = 16 };

struct kv_limits {
    size_t max_keys;  /* of all scopes, with those that are only waited for */
    size_t max_value; /* bytes of one */
    size_t max_bytes; /* of all */
};

struct kv;

/* "scope/key": neither has a '/', neither is empty. Borrowed wherever it is an argument. */
struct kv_name {
    const char *text;
    size_t len, scope_len; /* the key begins after the '/' */
};

struct kv_value {
    struct kv *kv;
    unsigned refs;
    size_t len;
    unsigned char data[];
};

struct kv_entry;

/* Of somebody who waits. In his own memory; zero while he does not. */
struct kv_waiter {
    TAILQ_ENTRY(kv_waiter) link;
    struct kv_entry *entry; /* not NULL: waits */
    struct kv_value *value; /* not NULL: it is there, and on the list of kv_ready() */
};

int kv_new(struct kv **ret, const struct kv_limits *limits, const unsigned char seed[KV_SEED]);
void kv_free(struct kv *kv); /* nobody has a value of it any more, or waits */

/* Splits "scope/key"; false: it is not that. */
bool kv_name_parse(struct kv_name *ret, const char *text, size_t len);

/* Room for a value: -EMSGSIZE (one is too long), -ENOSPC (all are), -ENOMEM. */
int kv_value_new(struct kv_value **ret, struct kv *kv, size_t len);
void kv_value_unref(struct kv_value *v); /* NULL is fine */

/* Takes v, in any case. mine: put here, not told by another node. Who waits for it becomes ready.
 * 0, -ENOSPC, -ENOMEM. */
int kv_put(struct kv *kv, struct kv_name name, struct kv_value *v, bool mine);
bool kv_is_mine(const struct kv *kv, struct kv_name name);
/* Shares it; NULL: it is not there. */
struct kv_value *kv_get(struct kv *kv, struct kv_name name);

int kv_wait(struct kv *kv, struct kv_name name, struct kv_waiter *w); /* 0, -ENOSPC, -ENOMEM */
void kv_wait_end(struct kv *kv,
                 struct kv_waiter *w); /* also of one that is ready or does not wait */
/* Takes the next one off the list; its value is the caller's then. NULL: none. */
struct kv_waiter *kv_ready(struct kv *kv);

/* One that has put a key has finished with its scope. 1: all have, and the scope is empty now;
 * else 0. */
int kv_finish(struct kv *kv, struct kv_name name);
/* Forgets the values of a scope. */
void kv_clear(struct kv *kv, const char *scope, size_t len);

DD_AUTO_DEFINE(kv_value, struct kv_value *, kv_value_unref);

#endif
