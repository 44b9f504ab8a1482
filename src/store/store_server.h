/* The c10d store on an event loop: adopts connections, feeds their bytes to the codec, sends the
 * replies.
 *
 * This is the hot path, so it uses its own buffers, and an epoll instance of its own that is one
 * event in the loop. A connection is adopted before anything is read from it, and is read only
 * after it was admitted. */
#ifndef DD_STORE_STORE_SERVER_H
#define DD_STORE_STORE_SERVER_H

#include "base/err.h"
#include "base/log.h"
#include "store/blob.h"
#include "store/limits.h"
#include "store/profile.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct store_carrier;
struct store_carrier_cfg;
struct store_server;
struct store_conn;

struct store_stats {
    uint64_t conns, conns_total; /* connections, those of relays included: open; since the start */
    uint64_t ops;                /* requests executed */
    uint64_t keys, bytes, waiters;
    uint64_t max_bytes; /* limit of `bytes` */
    uint64_t refused;   /* connections not accepted, or closed after a request that failed */
};

int store_server_new(struct store_server **ret, struct event_base *base, const struct dd_log *log,
                     const struct store_limits *limits, enum store_old_clients old,
                     struct dd_err *err);
/* Lower the limit of the stored values and buffers. Those that exist stay, even above the limit. */
void store_server_limit(struct store_server *s, size_t max_bytes);
void store_server_free(struct store_server *s); /* closes all connections and calls their on_gone */

/* Take fd, a connected non-blocking socket from which nothing was read; closed on failure. Nothing
 * is read until store_conn_admit(), even if the peer closes: its requests stay in the kernel until
 * then. *ret (may be NULL) is borrowed until the connection is closed. on_gone (may be NULL) is
 * called from the event loop once either side has closed the connection, and never within the
 * functions below except store_server_free(). 0, -ENOMEM, or -EMFILE: max_conns is reached. */
int store_server_adopt(struct store_server *s, int fd, bool admitted, struct store_conn **ret,
                       void (*on_gone)(void *arg), void *arg);
void store_conn_admit(struct store_conn *c);
void store_conn_close(struct store_conn *c);

/* Set a key as if a peer had set it. 0, -ENOMEM or -ENOSPC. */
int store_server_set(struct store_server *s, const char *key, const char *text);

/* Get the value of a key, borrowed until the next event; false: the key does not exist. */
bool store_server_get(const struct store_server *s, struct store_bytes key,
                      struct store_bytes *ret);
/* Call fn for every key, in no particular order, until fn returns nonzero; return that value. */
int store_server_each_key(const struct store_server *s,
                          int (*fn)(void *arg, struct store_bytes key), void *arg);

/* Close the connections that wait for a key with this prefix (a literal), and until
 * store_server_reset() those that begin such a wait: the key will never be set. */
void store_server_end_waits(struct store_server *s, const char *prefix);

/* Make the carrier for the relay of a node; store_server_reset() closes its connections. cfg: all
 * but soon and soon_arg. 0 or -ENOMEM. */
int store_server_carrier(struct store_server *s, struct store_carrier **ret,
                         const struct store_carrier_cfg *cfg);

/* Make the server, which has no connection yet, the relay of a round: store/store_relay.h. send: as
 * in struct store_relay_cfg. 0 or -ENOMEM. */
int store_server_relay(struct store_server *s, uint32_t round,
                       void (*send)(void *arg, const void *p, size_t n), void *arg);
/* Take a message of the daemon. < 0 with a message: the daemon does not follow the protocol. */
int store_server_take(struct store_server *s, const void *p, size_t n, struct dd_err *err);

/* Delete all keys and queues and close all connections, at the end of a round. */
void store_server_reset(struct store_server *s);
void store_server_stats(const struct store_server *s, struct store_stats *ret);
/* Return the counters of all rounds, by enum c10d_op; lent. */
const struct store_profile *store_server_profile(const struct store_server *s);
/* Begin to measure times and to count keys. 0 or -ENOMEM. */
int store_server_measure(struct store_server *s);

#endif
