/* The store's engine: keys with values, queues, and waiters for both.
 *
 * Uses no sockets, no clock and no wire format. A waiter is a struct store_waiter that the caller
 * embeds in its own object. A request that releases waiters appends them, in order, to a list,
 * which the caller must empty with store_released() after each request.
 *
 * Keys and queues have separate name spaces but share the waiters of a name. Keys are opaque bytes.
 * Src: docs/protocol/store-c10d.md. */
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

/* All zero while idle. */
struct store_waiter {
    struct store_wait_node *nodes; /* one per missing name; NULL if not waiting */
    size_t n;
    size_t missing; /* number of names still missing */
    bool barrier;
    bool released; /* on the list of store_released() */
    TAILQ_ENTRY(store_waiter) link;
    struct store_entry
        *called_by; /* the queue whose push released the waiter, until store_answered() */
    LIST_ENTRY(store_waiter) called;
};

struct store_engine_limits {
    size_t max_value; /* bytes; the caller checks the size of keys */
    size_t max_bytes; /* limit of the account */
};

/* seed: DD_SIPHASH_SEED unpredictable bytes. 0 or -ENOMEM. */
int store_engine_new(struct store_engine **ret, const struct store_engine_limits *limits,
                     const unsigned char *seed);
/* Drop all waiters without releasing them. Before _free, the caller must drop all shared references
 * to blobs. */
void store_engine_free(struct store_engine *e);
void store_engine_clear(struct store_engine *e);

/* Return the memory account of the engine, lent; callers also charge their buffers for peers to it.
 */
struct store_account *store_engine_account(struct store_engine *e);

/* The functions below return -ENOMEM, -ENOSPC (account is full) or -EMSGSIZE (value too long) on
 * failure and then leave the store unchanged. */

int store_set(struct store_engine *e, struct store_bytes key, struct store_bytes value);
/* Like store_set(), but takes the value, even on failure. */
int store_set_value(struct store_engine *e, struct store_bytes key, struct store_value value);
int store_append(struct store_engine *e, struct store_bytes key, struct store_bytes value);
/* True if n values with `bytes` bytes in total fit; for requests that must be atomic. */
bool store_has_room(const struct store_engine *e, size_t n, size_t bytes);
/* Return the value, borrowed until the next change; NULL if the key does not exist. */
const struct store_value *store_get(struct store_engine *e, struct store_bytes key);
/* -EINVAL if the value is not a number; else 0 and the sum, which wraps around. */
int store_add(struct store_engine *e, struct store_bytes key, int64_t delta, int64_t *ret);
/* *ret is the value for the reply, borrowed as from store_get(). If the key does not exist and
 * expected is not empty, the reply is `expected` itself: ret->blob is NULL and *ret_echo is true.
 */
int store_compare_set(struct store_engine *e, struct store_bytes key, struct store_bytes expected,
                      struct store_bytes desired, struct store_value *ret, bool *ret_echo);
bool store_delete(struct store_engine *e, struct store_bytes key); /* returns whether it existed */
/* True if the key exists or the queue is not empty. */
bool store_exists(const struct store_engine *e, struct store_bytes key);

int store_queue_push(struct store_engine *e, struct store_bytes name, struct store_bytes value);
int store_queue_push_value(struct store_engine *e, struct store_bytes name,
                           struct store_value value); /* taken, even on failure */
size_t store_queue_len(const struct store_engine *e, struct store_bytes name);
/* Remove and return the oldest value; the queue must not be empty. The caller unrefs its blob. */
struct store_value store_queue_pop(struct store_engine *e, struct store_bytes name);

/* Wait for all names that do not exist. 0: all exist; 1: w waits. w must be idle. */
int store_wait(struct store_engine *e, struct store_waiter *w, const struct store_bytes *keys,
               size_t n);
/* Count one more arrival. 0: all have arrived; 1: w waits for the others; -EINVAL: the value is not
 * a number. */
int store_barrier(struct store_engine *e, struct store_waiter *w, struct store_bytes key,
                  int64_t world);
/* Cancel a wait, even one that was just released. If a push released it and the item is still in
 * the queue, release the next waiter instead. Does nothing if w is idle. */
void store_cancel(struct store_engine *e, struct store_waiter *w);
/* Record that a waiter released by a push has received its reply: its connection is still open. */
void store_answered(struct store_engine *e, struct store_waiter *w);
static inline bool store_is_waiting(const struct store_waiter *w)
{
    return w->nodes != NULL;
}
/* True if w waits for a name with this prefix. */
bool store_waits_for(const struct store_waiter *w, const char *prefix);
/* Return the next released waiter, idle again; NULL: none. */
struct store_waiter *store_released(struct store_engine *e);

/* Call fn for every key, in no particular order, until fn returns nonzero; return that value. */
int store_each_key(const struct store_engine *e, int (*fn)(void *arg, struct store_bytes key),
                   void *arg);

size_t store_keys(const struct store_engine *e);
size_t store_waiters(const struct store_engine *e);

#endif
