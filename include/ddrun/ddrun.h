/* libddrun: ranks, shared values, collectives and events for the workers of a ddrun job.
 *
 * A worker reads its rank from the environment, exchanges data with the others through the store of
 * its round, and gets an event before the round is stopped. Without ddrun a program is rank 0 of 1.
 *
 * A round lasts from a start of the worker group to its end; a restart begins the next round. All
 * stored data belongs to the round and is lost with it. When the round is over, every call that
 * waits returns -ECANCELED.
 *
 * Functions return 0 or more, or a negative errno; ddrun_error() describes it. All may be called by
 * several threads at once. Timeouts are in milliseconds; DDRUN_FOREVER waits as long as the round
 * lasts. The library installs no signal handler and starts no thread. After fork() the child may
 * only call ddrun_free(); a program that it executes may call ddrun_init().
 *
 * A process has one handle. Independent parts of a process may have one each, if they use groups
 * with different names for their collectives: two handles share the group of all workers.
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
    DDRUN_VALUE_MAX = 64 << 20, /* bytes of a value, and of one rank's part of a collective */
    DDRUN_GROUP_NAME_MAX = 128,
};

struct ddrun;

/* Read the environment that ddrun has set and connect to the store of the round.
 * -EINVAL: a variable is missing or not a number; -ETIMEDOUT, -ECONNREFUSED (no listener for a
 * second): the store cannot be reached; -EACCES: the store does not accept this process as one of
 * its job. */
DDRUN_API int ddrun_init(struct ddrun **ret, int timeout_ms);
DDRUN_API void ddrun_free(struct ddrun *d); /* d may be NULL; no other call in progress */

DDRUN_API int ddrun_rank(const struct ddrun *d);
DDRUN_API int ddrun_size(const struct ddrun *d);
DDRUN_API int ddrun_local_rank(const struct ddrun *d);
DDRUN_API int ddrun_local_size(const struct ddrun *d);
DDRUN_API int ddrun_node_rank(const struct ddrun *d);
DDRUN_API int ddrun_nodes(const struct ddrun *d);
DDRUN_API int ddrun_round(const struct ddrun *d);    /* 0, 1, ...; also increases when nodes join or
                                                      * leave */
DDRUN_API int ddrun_restarts(const struct ddrun *d); /* number of restarts after failures */

/* Describe the last failed call of this thread; "" if there was none. */
DDRUN_API const char *ddrun_error(void);
/* Describe an error code. */
DDRUN_API const char *ddrun_strerror(int code);

/* ---- keys and values, for all workers of the round ---- */

DDRUN_API int ddrun_put(struct ddrun *d, const char *key, const void *value, size_t len,
                        int timeout_ms);
/* Wait until the key exists; a timeout of 0 tries once. A null byte follows the value, not counted
 * in *ret_len (may be NULL); free() *ret. -ETIMEDOUT: the key was not set in time. */
DDRUN_API int ddrun_get(struct ddrun *d, const char *key, void **ret, size_t *ret_len,
                        int timeout_ms);
DDRUN_API int ddrun_wait(struct ddrun *d, const char *const *keys, int n, int timeout_ms);
DDRUN_API int ddrun_delete(struct ddrun *d, const char *key,
                           int timeout_ms); /* 1: deleted; 0: there was no such key */
/* Add to a counter that starts at 0; *ret (may be NULL) is the sum. Keys and counters have separate
 * names. */
DDRUN_API int ddrun_add(struct ddrun *d, const char *key, int64_t delta, int64_t *ret,
                        int timeout_ms);

/* ---- groups and collectives ---- */

/* All members call the same collectives of a group in the same order, each member one at a time
 * (-EBUSY). Every collective returns when all members have called it. One that has timed out counts
 * as done: the next call is the next collective. */
struct ddrun_group;

/* Create a group from its n ranks, in the order of their places; they include this rank. Calls with
 * the same name and ranks create the same group, without communication. *ret is valid until
 * ddrun_free(). In the functions below, NULL is the group of all workers. */
DDRUN_API int ddrun_group(struct ddrun *d, struct ddrun_group **ret, const char *name,
                          const int *ranks, int n);
DDRUN_API int ddrun_group_rank(const struct ddrun *d,
                               const struct ddrun_group *g); /* this rank's place */
DDRUN_API int ddrun_group_size(const struct ddrun *d, const struct ddrun_group *g);

DDRUN_API int ddrun_barrier(struct ddrun *d, struct ddrun_group *g, int timeout_ms);
/* Copy len bytes, the same number on all members, from the member `root`. */
DDRUN_API int ddrun_broadcast(struct ddrun *d, struct ddrun_group *g, int root, void *data,
                              size_t len, int timeout_ms);
/* Gather len bytes from each member, the same number on all; out has room for len times the group's
 * size. */
DDRUN_API int ddrun_allgather(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len,
                              void *out, int timeout_ms);

struct ddrun_piece {
    const void *data;
    size_t len;
};
/* Gather any number of bytes per member; *ret has one piece per member. free(*ret) frees all. */
DDRUN_API int ddrun_allgatherv(struct ddrun *d, struct ddrun_group *g, const void *in, size_t len,
                               struct ddrun_piece **ret, int timeout_ms);

/* Allgatherv without waiting: begin, test until the result is not 0, always free the request. */
struct ddrun_request;
DDRUN_API int ddrun_allgatherv_begin(struct ddrun *d, struct ddrun_group *g, const void *in,
                                     size_t len, struct ddrun_request **ret);
/* 1: done, *ret (may be NULL) is set as by ddrun_allgatherv(), only once; 0: not yet. */
DDRUN_API int ddrun_test(struct ddrun_request *r, struct ddrun_piece **ret);
DDRUN_API void ddrun_request_free(struct ddrun_request *r); /* a collective in progress counts as
                                                             * timed out */

/* ---- heartbeat, steps and events ---- */

/* Signal progress, for --hang-timeout. Does nothing without that option. */
DDRUN_API int ddrun_heartbeat(struct ddrun *d);

/* Mark the steps of the training, so that ddrun finds stragglers (docs/health.md). A call costs
 * about a microsecond and no communication; without ddrun it does nothing. One thread at a time.
 * Begin step `step`, 0 or more, and complete the previous one. */
DDRUN_API int ddrun_step(struct ddrun *d, int64_t step);
/* From here to ddrun_step_resume(), or to the next ddrun_step(), this worker may wait for others,
 * as in a collective. Waits are not this worker's own time: in synchronous training the steps of
 * all workers are as long as those of the slowest one. */
DDRUN_API int ddrun_step_wait(struct ddrun *d);
DDRUN_API int ddrun_step_resume(struct ddrun *d);

enum ddrun_event_kind {
    DDRUN_EVENT_STOP = 1,   /* the round is being stopped with `signal` */
    DDRUN_EVENT_SIGNAL = 2, /* `signal` was sent to all workers as a notice, for example by
                               --signal-before-end */
};
struct ddrun_event {
    enum ddrun_event_kind kind;
    int signal;
};
/* Wait for the next event of this round; a handle gets each once, beginning with the first.
 * -ETIMEDOUT: there was none. -ECANCELED: the round is over. */
DDRUN_API int ddrun_next_event(struct ddrun *d, struct ddrun_event *ret, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
