/* Connections that have not proved yet that they belong to this job. Any user may open them, so
 * their number is bounded, and each counts for the machine that it comes from: when one has to make
 * room, the source with the most connections loses its oldest, so a flood evicts itself.
 * Connections that are known to be another user's go first. No I/O, no clock. */
#ifndef DD_NET_UNPROVEN_H
#define DD_NET_UNPROVEN_H

#include "net/addr.h"

#include <stdint.h>
#include <sys/queue.h>

struct unproven_source;

/* Part of the object that owns the connection. */
struct unproven {
    TAILQ_ENTRY(unproven) by_age, by_source;
    struct unproven_set *set; /* NULL: in none */
    struct unproven_source *source;
    uint64_t since_ns, keep_until_ns;
    bool foreign;
    void (*evict)(struct unproven *u); /* closes the connection; calls unproven_remove() */
};

TAILQ_HEAD(unproven_list, unproven);
LIST_HEAD(unproven_sources, unproven_source);

struct unproven_set {
    struct unproven_list all, foreign; /* the oldest first */
    struct unproven_sources sources;
    size_t n;
};

void unproven_set_init(struct unproven_set *s);
void unproven_set_done(struct unproven_set *s); /* evicts all */

/* The machine at the other end of a connection, as it counts here: of an IPv6 address 64 bits. len
 * 0: unknown. */
void unproven_source_of(int fd, struct net_addr *ret);

int unproven_add(struct unproven_set *s, struct unproven *u, const struct net_addr *from,
                 uint64_t now_ns);        /* 0 or -ENOMEM */
void unproven_remove(struct unproven *u); /* also when it is in no set */
void unproven_is_foreign(struct unproven *u);

/* Until then it is evicted only if foreign: a peer that does not try again has that long to prove
 * itself, whatever the rate of a flood. */
void unproven_keep(struct unproven *u, uint64_t until_ns);

/* Makes room for one. False: none may go yet. */
bool unproven_evict_one(struct unproven_set *s, uint64_t now_ns);
/* Evicts what is older than that. */
void unproven_expire(struct unproven_set *s, uint64_t now_ns, uint64_t max_age_ns);

#endif
