/* One try to reach the daemon at one address: connect, hello, key, TLS. */
#ifndef DD_NET_LINK_TRY_H
#define DD_NET_LINK_TRY_H

#include "net/link.h"

/* How a try ended, from the least to the most telling. */
enum link_verdict {
    TRY_NONE,    /* not over yet */
    TRY_NO_WAY,  /* no route, no answer */
    TRY_NOBODY,  /* nothing listens */
    TRY_SILENT,  /* accepts connections and answers nothing */
    TRY_FOREIGN, /* another program */
    TRY_OTHER,   /* ddrun, of another job */
    TRY_VERSION, /* ddrun, another protocol */
    TRY_FULL,    /* our job's daemon, and it takes no more */
    TRY_BROKEN,  /* it was lost on the way, or local trouble */
    TRY_NO_KEY,  /* our job's, but the key cannot be had */
    TRY_BAD_KEY, /* our job's, but the keys differ */
    TRY_LINK,
};

struct link_try;
struct link_try_cfg {
    const struct link_find_cfg *find; /* borrowed for the life of the try */
    struct net_tls **tls;             /* made when first needed, kept by the caller */
    struct net_addr addr;
    unsigned limit_ms; /* for all of it */
    /* Once, from the loop; l is given with TRY_LINK; why is a part of a sentence, lent. The try may
     * be freed in it. */
    void (*done)(void *arg, struct link_try *t, enum link_verdict v, struct link *l,
                 const char *why);
    void *arg;
};

int link_try_start(struct link_try **ret, struct event_base *base, const struct link_try_cfg *cfg);
void link_try_free(struct link_try *t);

#endif
