/* The c10d store on a loop: connections in, bytes to the codec, replies out.
 *
 * Plain libevent events and our own buffers: this is the hot path. A connection is adopted with its
 * first bytes still unread; it is answered only once it has been admitted.
 */
#ifndef DD_STORE_SERVER_H
#define DD_STORE_SERVER_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct store_server;
struct store_conn;

/* Which op table a client without VALIDATE speaks (facts: 2.1 and 1.13 cannot be told apart for sure). */
enum store_old_clients { STORE_OLD_REFUSE, STORE_OLD_113, STORE_OLD_21 };

struct store_limits {
    size_t max_key;          /* bytes; default 8192 */
    size_t max_value;        /* bytes of one value; default 64 MiB + some */
    size_t max_count;        /* keys in one request; default 131072 */
    size_t max_bytes;        /* everything stored; default 8 GiB; a SET over it closes the connection */
    size_t max_conns;        /* default 131072 */
    size_t max_request;      /* bytes of one request buffered per connection */
    size_t max_output;       /* bytes of replies queued for one slow reader */
};
void store_limits_default(struct store_limits *l);

struct store_stats {
    uint64_t conns, conns_total, ops, keys, bytes, waiters, refused;
};

int store_server_new(struct store_server **ret, struct event_base *base, const struct dd_log *log,
                     const struct store_limits *limits, enum store_old_clients old,
                     struct dd_err *err);
void store_server_free(struct store_server *s); /* closes all connections */

/* Takes fd (closed on failure too), a connected non-blocking socket with nothing read from it.
 * Reads at once but answers nothing until store_conn_admit(). *ret (may be NULL) is lent until the connection
 * is gone; on_gone tells (never from within store_server_adopt). */
int store_server_adopt(struct store_server *s, int fd, bool admitted, struct store_conn **ret,
                       void (*on_gone)(void *arg), void *arg);
void store_conn_admit(struct store_conn *c);
void store_conn_close(struct store_conn *c);

/* Drops all keys and queues and closes all connections: a round is over. */
void store_server_reset(struct store_server *s);
void store_server_stats(const struct store_server *s, struct store_stats *ret);

#endif
