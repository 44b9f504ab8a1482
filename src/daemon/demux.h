/* The one port: accepts connections, looks up the owner of each at once, and tells by the first
 * byte what it is. 0xdd is an agent's link, 0x00-0x1f a worker that speaks c10d; anything else is
 * not served.
 *
 * A connection that this user is known to have opened may be silent forever. All others are
 * unproven (net/unproven.h): their number and their time are bounded, and some descriptors are kept
 * free of them and of workers. */
#ifndef DD_DAEMON_DEMUX_H
#define DD_DAEMON_DEMUX_H

#include "daemon/admission.h"
#include "net/link.h"
#include "store/server.h"

struct demux;

struct demux_cfg {
    struct event_base *base;
    int listen_fd;   /* taken, non-blocking */
    int nodes;       /* agents at once */
    bool open_store; /* admit workers without looking up their owner */
    struct store_server *store;
    struct admission *admission;
    struct link_accept_cfg accept;              /* for agents; the timeout is set here */
    bool (*may_connect)(void *arg);             /* an agent; NULL: none is served */
    void (*on_link)(void *arg, struct link *l); /* takes l, of an agent that has the job's key */
    /* The count-th agent without the job's key; uid is NULL. */
    void (*on_refused)(void *arg, uint64_t count, const struct net_addr *from, const uid_t *uid,
                       const char *why);
    void *arg;
};

int demux_new(struct demux **ret, const struct demux_cfg *cfg, struct dd_err *err);
void demux_free(struct demux *d); /* before the admission, where its connections wait */
/* Makes the TLS context now: OpenSSL may load a provider from a file, as in FIPS mode. */
int demux_prepare(struct demux *d, struct dd_err *err);
/* Closes workers' connections whose owner is not known yet: their round is over. */
void demux_drop_workers(struct demux *d);

#endif
