/* Keys and values in scopes, as in Horovod's rendezvous, and waiters for keys. Pure.
 *
 * kv_limits bounds all memory that peers can use. A value counts from its allocation until its last
 * reference is dropped. */
#ifndef DD_HTTP_KV_H
#define DD_HTTP_KV_H

#include "base/auto.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

enum { KV_NAME_MAX = 512, KV_SEED = 16 };

struct kv_limits {
    size_t max_keys;  /* in all scopes, including keys that only have waiters */
    size_t max_value; /* bytes of one value */
    size_t max_bytes; /* bytes of all values */
};

struct kv;

/* "scope/key": neither part is empty or contains '/'. Borrowed as an argument. */
struct kv_name {
    const char *text;
    size_t len, scope_len; /* the key starts after the '/' */
};

struct kv_value {
    struct kv *kv;
    unsigned refs;
    size_t len;
    unsigned char data[];
};

struct kv_entry;

/* A waiter, embedded in the caller's object; zero while idle. */
struct kv_waiter {
    TAILQ_ENTRY(kv_waiter) link;
    struct kv_entry *entry; /* key that is waited for; NULL: not waiting */
    struct kv_value
        *value; /* not NULL: the value has arrived, and the waiter is in the list of kv_ready() */
};

int kv_new(struct kv **ret, const struct kv_limits *limits, const unsigned char seed[KV_SEED]);
void kv_free(struct kv *kv); /* requires that no value is referenced and no waiter is left */

/* Split "scope/key"; false: malformed. */
bool kv_name_parse(struct kv_name *ret, const char *text, size_t len);

/* Allocate a value: -EMSGSIZE (above max_value), -ENOSPC (above max_bytes), -ENOMEM. */
int kv_value_new(struct kv_value **ret, struct kv *kv, size_t len);
void kv_value_unref(struct kv_value *v); /* NULL does nothing */

/* Store v, which is taken even on failure. mine: put by a worker of this node rather than received
 * from another node. Waiters for the key become ready. 0, -ENOSPC or -ENOMEM. */
int kv_put(struct kv *kv, struct kv_name name, struct kv_value *v, bool mine);
bool kv_is_mine(const struct kv *kv, struct kv_name name);
/* Return a new reference to the value; NULL: none. */
struct kv_value *kv_get(struct kv *kv, struct kv_name name);

int kv_wait(struct kv *kv, struct kv_name name, struct kv_waiter *w); /* 0, -ENOSPC, -ENOMEM */
void kv_wait_end(struct kv *kv, struct kv_waiter *w); /* also for a waiter that is ready or idle */
/* Remove and return the next ready waiter; the caller owns its value. NULL: none. */
struct kv_waiter *kv_ready(struct kv *kv);

/* Note that the worker that has put this key has finished with its scope. 1: all workers of this
 * node that have put a key there have finished, and the scope is now empty; otherwise 0. */
int kv_finish(struct kv *kv, struct kv_name name);
/* Delete the values of a scope. */
void kv_clear(struct kv *kv, const char *scope, size_t len);

DD_AUTO_DEFINE(kv_value, struct kv_value *, kv_value_unref);

#endif
