/* One attempt to reach the daemon at one address: connect, hello, key, TLS. */
#ifndef DD_NET_LINK_ATTEMPT_INNER_H
#define DD_NET_LINK_ATTEMPT_INNER_H

#include "net/link.h"

/* Results of an attempt, from the least to the most informative. */
enum link_verdict {
    ATTEMPT_NONE,        /* still in progress */
    ATTEMPT_LOCAL,       /* this process cannot connect: it is out of memory, or OpenSSL does not
                          * start */
    ATTEMPT_UNREACHABLE, /* no route, no answer */
    ATTEMPT_NO_LISTENER, /* nothing listens */
    ATTEMPT_SILENT,      /* accepts connections but does not answer */
    ATTEMPT_FOREIGN,     /* another program */
    ATTEMPT_OTHER,       /* ddrun, of another job */
    ATTEMPT_BUSY,        /* our job's daemon has answered, and the handshake is not finished */
    ATTEMPT_VERSION,     /* ddrun, another protocol */
    ATTEMPT_FULL,        /* our job's daemon, which accepts no more nodes */
    ATTEMPT_BROKEN,      /* the connection was lost, or a local error */
    ATTEMPT_NO_KEY,      /* our job's daemon, but this node cannot get the key */
    ATTEMPT_BAD_KEY,     /* our job's daemon, but the keys differ */
    ATTEMPT_LINK,
};

struct link_attempt;
struct link_attempt_cfg {
    const struct link_find_cfg *find; /* borrowed for the life of the attempt */
    struct net_tls **tls;             /* created on first use, owned by the caller */
    struct net_addr addr;
    unsigned limit_ms; /* for the whole attempt */
    /* More time after limit_ms, since a daemon of many nodes serves them in order and a new attempt
     * would go to the end of its queue; 0: none */
    unsigned silent_ms; /* for a peer that has accepted the connection */
    unsigned busy_ms;   /* for the TLS handshake, which begins with another limit_ms */
    /* limit_ms has passed, but the attempt goes on; v and why as for done. NULL: not reported. */
    void (*slow)(void *arg, enum link_verdict v, const char *why);
    /* Called once, from the event loop. l is given with ATTEMPT_LINK. why is valid during the call:
     * from ATTEMPT_SILENT on a predicate ("is another program"), before that a reason ("Connection
     * refused"). The callback may free the attempt. */
    void (*done)(void *arg, struct link_attempt *t, enum link_verdict v, struct link *l,
                 const char *why);
    void *arg;
};

int link_attempt_start(struct link_attempt **ret, struct event_base *base,
                       const struct link_attempt_cfg *cfg);
void link_attempt_free(struct link_attempt *t);

#endif
