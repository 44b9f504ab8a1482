/* The listening socket: accept connections, look up the owner of each connection, and determine the
 * peer's kind from the first byte: 0xdd is an agent's link, 0x00-0x1f a worker that speaks c10d. A
 * connection with any other first byte is closed.
 *
 * A connection that is known to be owned by this user may stay silent forever. All others are
 * unproven (net/unproven.h): their number and duration are bounded. Neither these nor workers get
 * the last few file descriptors, which ddrund needs itself. */
#ifndef DD_DAEMON_DEMUX_H
#define DD_DAEMON_DEMUX_H

#include "daemon/admission.h"
#include "net/link.h"
#include "store/store_server.h"

struct demux;

struct demux_cfg {
    struct event_base *base;
    int listen_fd;   /* taken over, non-blocking */
    int nodes;       /* maximum number of agents */
    bool open_store; /* admit workers without looking up their owner */
    struct store_server *store;
    struct admission *admission;
    struct link_accept_cfg accept;  /* for agents; demux sets the timeout */
    bool (*may_connect)(void *arg); /* true if one more agent may connect; NULL: none may */
    void (*on_worker)(void *arg,
                      const struct net_addr *from); /* a worker was admitted; NULL: ignored */
    void (*on_link)(
        void *arg,
        struct link *l); /* takes l, the link of an agent that has proved the job's key */
    /* Called for the count-th agent that failed to prove the job's key, or sent invalid data; uid
     * is NULL. */
    void (*on_refused)(void *arg, uint64_t count, const struct net_addr *from, const uid_t *uid,
                       const char *why);
    void *arg;
};

int demux_new(struct demux **ret, const struct demux_cfg *cfg, struct dd_err *err);
void demux_free(struct demux *d); /* before the admission, which holds queries of its connections */
/* Create the TLS context now: OpenSSL may load a provider from a file, as in FIPS mode. */
int demux_prepare(struct demux *d, struct dd_err *err);
/* Close workers' connections whose owner is still unknown: their round is over. */
void demux_drop_workers(struct demux *d);

#endif
