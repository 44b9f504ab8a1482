/* Connections that have not yet authenticated. Any user may open them, so their number is bounded
 * and each is counted for its source machine: if the bound is reached, the source with the most
 * connections loses its oldest one, so that a flood evicts itself. Connections that another user is
 * known to own are evicted first. No clock; the only system call is getpeername(). */
#ifndef DD_NET_UNPROVEN_H
#define DD_NET_UNPROVEN_H

#include "net/addr_table.h"

#include <stdint.h>
#include <sys/queue.h>

struct unproven_source;

/* Part of the object that owns the connection. */
struct unproven {
    TAILQ_ENTRY(unproven) by_age, by_source;
    struct unproven_set *set; /* NULL: in no set */
    struct unproven_source *source;
    uint64_t since_ns, keep_until_ns;
    bool foreign;
    bool waits;                        /* the peer waits for this process: no age limit */
    void (*evict)(struct unproven *u); /* closes the connection; calls unproven_remove() */
};

TAILQ_HEAD(unproven_list, unproven);
LIST_HEAD(unproven_sources, unproven_source);

struct unproven_set {
    struct unproven_list all, foreign; /* oldest first */
    struct unproven_sources sources;
    struct addr_table by_addr; /* the sources */
    size_t n;
};

void unproven_set_init(struct unproven_set *s);
void unproven_set_done(struct unproven_set *s); /* evicts all */

/* Find the source machine of a connection: for IPv6 the upper 64 bits of the address. ret->len 0:
 * unknown. */
void unproven_source_of(int fd, struct net_addr *ret);

int unproven_add(struct unproven_set *s, struct unproven *u, const struct net_addr *from,
                 uint64_t now_ns);            /* 0 or -ENOMEM */
void unproven_remove(struct unproven *u);     /* does nothing if u is in no set */
void unproven_is_foreign(struct unproven *u); /* mark u as owned by another user */

/* Protect a connection that is not foreign from unproven_evict_one() until until_ns: a peer that
 * does not retry then has time to authenticate, whatever the rate of a flood. */
void unproven_keep(struct unproven *u, uint64_t until_ns);

/* Evict one connection. False: none can be evicted yet. */
bool unproven_evict_one(struct unproven_set *s, uint64_t now_ns);
/* Restart the age of a connection whose peer has completed a step. waits: the peer now waits for
 * this process, so the age does not count. */
void unproven_renew(struct unproven *u, uint64_t now_ns, bool waits);
/* Evict connections older than max_age_ns, except those that wait for this process. */
void unproven_expire(struct unproven_set *s, uint64_t now_ns, uint64_t max_age_ns);

#endif
