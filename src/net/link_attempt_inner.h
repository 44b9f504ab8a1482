/* One attempt to reach the daemon at one address: connect, hello, key, TLS. */
#ifndef DD_NET_LINK_ATTEMPT_INNER_H
#define DD_NET_LINK_ATTEMPT_INNER_H

#include "net/link.h"

/* Results of an attempt, from the least to the most informative. */
enum link_verdict {
    TRY_NONE,    /* still in progress */
    TRY_NO_WAY,  /* no route, no answer */
    TRY_NOBODY,  /* nothing listens */
    TRY_SILENT,  /* accepts connections but does not answer */
    TRY_FOREIGN, /* another program */
    TRY_OTHER,   /* ddrun, of another job */
    TRY_VERSION, /* ddrun, another protocol */
    TRY_FULL,    /* our job's daemon, which accepts no more nodes */
    TRY_BROKEN,  /* the connection was lost, or a local error */
    TRY_NO_KEY,  /* our job's daemon, but this node cannot get the key */
    TRY_BAD_KEY, /* our job's daemon, but the keys differ */
    TRY_LINK,
};

struct link_try;
struct link_try_cfg {
    const struct link_find_cfg *find; /* borrowed for the life of the try */
    struct net_tls **tls;             /* created on first use, owned by the caller */
    struct net_addr addr;
    unsigned limit_ms; /* for the whole attempt */
    /* Called once, from the event loop. l is given with TRY_LINK; why is a predicate ("is another
     * program"), valid during the call. The callback may free the attempt. */
    void (*done)(void *arg, struct link_try *t, enum link_verdict v, struct link *l,
                 const char *why);
    void *arg;
};

int link_try_start(struct link_try **ret, struct event_base *base, const struct link_try_cfg *cfg);
void link_try_free(struct link_try *t);

#endif
