/* libddrun: what the workers of a ddrun job may ask each other and ddrun.
 *
 * A worker finds out who it is, exchanges data with the others through the store of its round, and
 * hears when the round is about to be stopped. Without ddrun every program is a world of its own:
 * rank 0 of 1.
 *
 * A round is one life of the worker group. All that is stored belongs to it: after a restart
 * nothing of it is left. When the round is over, every call that waits ends with -ECANCELED.
 *
 * Functions return 0 or more, or a negative errno; ddrun_error() has the sentence to it. All may be
 * called by several threads at once. Time-outs are in milliseconds; DDRUN_FOREVER waits as long as
 * the round lasts. No signal handler is installed and no thread is started. After fork() the child
 * may only call ddrun_free(); a program that it executes may call ddrun_init().
 *
 * A process has one handle. Parts of it that do not know each other may have one each, if they make
 * groups with names of their own for their collectives: the world of two handles is the same one.
 */
#ifndef DDRUN_DDRUN_H
#define DDRUN_DDRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DDRUN_API __attribute__((visibility("default")))

enum {
    DDRUN_FOREVER = -1,
    DDRUN_KEY_MAX = 4096,       /* bytes of a key, 1 at least */
    DDRUN_VALUE_MAX = 64 << 20, /* bytes of a value, and of what one rank gives to a collective */
    DDRUN_GROUP_NAME_MAX = 128,
};

struct ddrun;

/* Who am I? Reads what ddrun has put into the environment and connects to the store of the round.
 * -EINVAL: a variable is missing or no number; -ETIMEDOUT, -ECONNREFUSED (nobody listens there, for
 * a second), -EACCES: the store cannot be reached, or does not take this process for one of its
 * job. */
DDRUN_API int ddrun_init(struct ddrun **ret, int timeout_ms);
DDRUN_API void ddrun_free(struct ddrun *d); /* NULL is fine; no other call may be under way */

DDRUN_API int ddrun_rank(const struct ddrun *d);
DDRUN_API int ddrun_size(const struct ddrun *d);
DDRUN_API int ddrun_local_rank(const struct ddrun *d);
DDRUN_API int ddrun_local_size(const struct ddrun *d);
DDRUN_API int ddrun_node_rank(const struct ddrun *d);
DDRUN_API int ddrun_nodes(const struct ddrun *d);
DDRUN_API int ddrun_round(const struct ddrun *d);    /* 0, 1, ... also when nodes came or went */
DDRUN_API int ddrun_restarts(const struct ddrun *d); /* that were counted, because of failures */

/* A sentence about the last call of this thread that failed; "" when there was none. */
DDRUN_API const char *ddrun_error(void);
/* A sentence about a code alone. */
DDRUN_API const char *ddrun_strerror(int code);

/* ---- keys and values, for all workers of the round ---- */

DDRUN_API int ddrun_put(struct ddrun *d, const char *key, const void *value, size_t len,
                        int timeout_ms);
/* Waits until the key is there; 0 as time-out looks once. *ret is ended by a byte 0 that is not
 * counted in *ret_len (may be NULL); free() it. -ETIMEDOUT: it has not come. */
DDRUN_API int ddrun_get(struct ddrun *d, const char *key, void **ret, size_t *ret_len,
                        int timeout_ms);
DDRUN_API int ddrun_wait(struct ddrun *d, const char *const *keys, int n, int timeout_ms);
DDRUN_API int ddrun_delete(struct ddrun *d, const char *key,
                           int timeout_ms); /* 1, 0: there was none */
/* A counter, 0 at first; *ret (may be NULL) is the sum. Counters have names of their own: one is
 * not the value of the key with its name. */
DDRUN_API int ddrun_add(struct ddrun *d, const char *key, int64_t delta, int64_t *ret,
                        int timeout_ms);

/* ---- groups and collectives ---- */

/* All members call the same collectives of a group in the same order, each a single one at a time
 * (-EBUSY). Every collective ends when all members have come. One that has timed out counts as
 * done: the next call is the next collective. */
struct ddrun_group;

/* The n ranks of the group, in the order of their places in it, this rank among them. The same name
 * and ranks are the same group. Asks nobody. Lends *ret until ddrun_free(). NULL as a group, below,
 * is the whole world. */
DDRUN_API int ddrun_group(struct ddrun *d, struct ddrun_group **ret, const char *name,
                          const int *ranks, int n);
DDRUN_API int ddrun_group_rank(const struct ddrun *d,
                               const struct ddrun_group *g); /* my place in it */
DDRUN_API int ddrun_group_size(const struct ddrun *d, const struct ddrun_group *g);

DDRUN_API int ddrun_barrier(struct ddrun *d, struct ddrun_group *g, int timeout_ms);
/* len bytes, the same number on all, from the member `root`. */
DDRUN_API int ddrun_broadcast(struct ddrun *d, struct ddrun_group *g, int root, void *data,
                              size_t len, int timeout_ms);
/* len bytes from each, the same number; out has room for that times the group's size. */
DDRUN_API int ddrun_allgather(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len,
                              void *out, int timeout_ms);

struct ddrun_piece {
    const void *data;
    size_t len;
};
/* Any number of bytes from each; *ret has a piece per member. All of it goes with free(*ret). */
DDRUN_API int ddrun_allgatherv(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len,
                               struct ddrun_piece **ret, int timeout_ms);

/* The same without waiting: begin, then test until it is no longer 0. In any case free the request.
 */
struct ddrun_request;
DDRUN_API int ddrun_allgatherv_begin(struct ddrun *d, struct ddrun_group *g, const void *in,
                                     size_t len, struct ddrun_request **ret);
/* 1: done, *ret (may be NULL) is given as above, once; 0: not yet. */
DDRUN_API int ddrun_test(struct ddrun_request *r, struct ddrun_piece **ret);
DDRUN_API void
ddrun_request_free(struct ddrun_request *r); /* also under way: it has then timed out */

/* ---- what ddrun and its worker tell each other ---- */

/* "I am well", for --hang-timeout. Does nothing where ddrun does not ask. */
DDRUN_API int ddrun_heartbeat(struct ddrun *d);

enum ddrun_event_kind {
    DDRUN_EVENT_STOP = 1,   /* the round is being stopped; signal: what the workers get */
    DDRUN_EVENT_SIGNAL = 2, /* a signal that announces something went to all workers, as that of
                               --signal-before-end: the time is nearly over */
};
struct ddrun_event {
    enum ddrun_event_kind kind;
    int signal;
};
/* The next event of this round that this handle was not told yet, from the first one on.
 * -ETIMEDOUT: there was none. -ECANCELED: the round is over. */
DDRUN_API int ddrun_next_event(struct ddrun *d, struct ddrun_event *ret, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
