/* The store itself: keys with values, queues, and those who wait for them.
 *
 * Knows no sockets, no clock and no wire format. Who waits is a struct store_waiter that the
 * caller embeds in its own object; a request that releases waiters puts them, in order, on a list
 * which the caller empties with store_released() after each request.
 *
 * Keys and queues have a name space each, but share the waiters of a name. Keys are opaque bytes.
 * Src: docs/protocol/store-c10d.md.
 */
#ifndef DD_STORE_ENGINE_H
#define DD_STORE_ENGINE_H

#include "store/blob.h"
#include "store/siphash.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct store_engine;
struct store_entry;
struct store_wait_node;

/* All zero while it waits for nothing. */
struct store_waiter {
    struct store_wait_node *nodes; /* one per name that was missing; NULL when not waiting */
    size_t n;
    size_t missing; /* of them, still missing */
    bool barrier;
    bool released; /* on the list of store_released() */
    TAILQ_ENTRY(store_waiter) link;
    struct store_entry *called_by; /* the queue whose push released it, until store_answered() */
    LIST_ENTRY(store_waiter) called;
};

struct store_engine_limits {
    size_t max_value; /* bytes; keys are checked by the caller */
    size_t max_bytes; /* of everything that is charged to the account */
};

/* seed: DD_SIPHASH_SEED unpredictable bytes. 0 or -ENOMEM. */
int store_engine_new(struct store_engine **ret, const struct store_engine_limits *limits,
                     const unsigned char *seed);
/* Waiters are forgotten, not released. Blobs that others share must be gone before _free. */
void store_engine_free(struct store_engine *e);
void store_engine_clear(struct store_engine *e);

/* Memory of the engine; callers charge their own buffers for peers to it as well. */
struct store_account *store_engine_account(struct store_engine *e);

/* Below, negative results are -ENOMEM, -ENOSPC (account is full), -EMSGSIZE (value too long); the
 * store is then as it was. */

int store_set(struct store_engine *e, struct store_bytes key, struct store_bytes value);
/* The same with a value that is taken, also on failure. */
int store_set_value(struct store_engine *e, struct store_bytes key, struct store_value value);
int store_append(struct store_engine *e, struct store_bytes key, struct store_bytes value);
/* Whether n values of `bytes` bytes in all have room; for requests that must not be half done. */
bool store_has_room(const struct store_engine *e, size_t n, size_t bytes);
/* The value, lent until the next change; NULL when the key does not exist. */
const struct store_value *store_get(struct store_engine *e, struct store_bytes key);
/* -EINVAL when the value is no number; otherwise 0 and the sum, which wraps around. */
int store_add(struct store_engine *e, struct store_bytes key, int64_t delta, int64_t *ret);
/* *ret is what to answer, lent like that of store_get(); or `expected` itself, when the key does
 * not exist and expected is not empty (ret->blob is NULL then, and *ret_echo true). */
int store_compare_set(struct store_engine *e, struct store_bytes key, struct store_bytes expected,
                      struct store_bytes desired, struct store_value *ret, bool *ret_echo);
bool store_delete(struct store_engine *e, struct store_bytes key); /* whether it existed */
/* As a key, or as a queue that is not empty. */
bool store_exists(const struct store_engine *e, struct store_bytes key);

int store_queue_push(struct store_engine *e, struct store_bytes name, struct store_bytes value);
int store_queue_push_value(struct store_engine *e, struct store_bytes name,
                           struct store_value value); /* taken, also on failure */
size_t store_queue_len(const struct store_engine *e, struct store_bytes name);
/* Gives the oldest value; the queue must not be empty. The caller unrefs its blob. */
struct store_value store_queue_pop(struct store_engine *e, struct store_bytes name);

/* Waits for all names that do not exist now. 0: they all do; 1: w waits. w must be idle. */
int store_wait(struct store_engine *e, struct store_waiter *w, const struct store_bytes *keys,
               size_t n);
/* Counts one more arrival. 0: pass; 1: w waits for the others; -EINVAL: the value is no number. */
int store_barrier(struct store_engine *e, struct store_waiter *w, struct store_bytes key,
                  int64_t world);
/* Ends a wait, also one that was just released. When a push had released it and it has not come
 * for the item, the next waiter is released instead. Fine when w waits for nothing. */
void store_cancel(struct store_engine *e, struct store_waiter *w);
/* Whoever was released by a push is still there and goes on. */
void store_answered(struct store_engine *e, struct store_waiter *w);
static inline bool store_is_waiting(const struct store_waiter *w)
{
    return w->nodes != NULL;
}
/* Whether it waits for a name that begins so. */
bool store_waits_for(const struct store_waiter *w, const char *prefix);
/* The next waiter that was released, idle again; NULL when there is none. */
struct store_waiter *store_released(struct store_engine *e);

/* Calls fn for every key, in no order, until it returns something else than 0, which is returned.
 */
int store_each_key(const struct store_engine *e, int (*fn)(void *arg, struct store_bytes key),
                   void *arg);

size_t store_keys(const struct store_engine *e);
size_t store_waiters(const struct store_engine *e);

#endif
