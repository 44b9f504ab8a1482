/* The c10d store on a loop: connections in, bytes to the codec, replies out.
 *
 * This is the hot path: an epoll of its own inside the loop's, and our own buffers. A connection is
 * adopted with its first bytes still unread; it is read only once it has been admitted.
 */
#ifndef DD_STORE_SERVER_H
#define DD_STORE_SERVER_H

#include "base/err.h"
#include "base/log.h"
#include "store/blob.h"
#include "store/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct store_server;
struct store_conn;

struct store_stats {
    uint64_t conns, conns_total; /* now, ever */
    uint64_t ops;                /* requests carried out */
    uint64_t keys, bytes, waiters;
    uint64_t refused; /* over max_conns, or closed because of what the peer sent */
};

int store_server_new(struct store_server **ret, struct event_base *base, const struct dd_log *log,
                     const struct store_limits *limits, enum store_old_clients old,
                     struct dd_err *err);
void store_server_free(struct store_server *s); /* closes all connections, telling their on_gone */

/* Takes fd (closed on failure too), a connected non-blocking socket with nothing read from it.
 * Until store_conn_admit() nothing is read, even when the peer closes: its requests are in the
 * kernel and are carried out, or not, once that is decided. *ret (may be NULL) is lent until the
 * connection is gone; on_gone (may be NULL) tells, whoever closed it, from the loop, never from
 * within the functions below except store_server_free(). */
int store_server_adopt(struct store_server *s, int fd, bool admitted, struct store_conn **ret,
                       void (*on_gone)(void *arg), void *arg);
void store_conn_admit(struct store_conn *c);
void store_conn_close(struct store_conn *c);

/* Sets a key, as a peer would. 0, -ENOMEM, -ENOSPC. */
int store_server_set(struct store_server *s, const char *key, const char *text);

/* The value of a key, lent until the next event; false: there is no such key. */
bool store_server_get(const struct store_server *s, struct store_bytes key,
                      struct store_bytes *ret);
/* Calls fn for every key, in no order, until it returns something else than 0, which is returned.
 */
int store_server_each_key(const struct store_server *s,
                          int (*fn)(void *arg, struct store_bytes key), void *arg);

/* Closes the connections that wait for a key that begins so (a literal), until _reset also those
 * that will: whom they wait for does not come. */
void store_server_end_waits(struct store_server *s, const char *prefix);

/* Drops all keys and queues and closes all connections: a round is over. */
void store_server_reset(struct store_server *s);
void store_server_stats(const struct store_server *s, struct store_stats *ret);

#endif
