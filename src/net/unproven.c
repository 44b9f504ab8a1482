#include "net/unproven.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct unproven_source {
    struct addr_entry by_addr; /* must be the first member: addr_table_find() returns it */
    LIST_ENTRY(unproven_source) entry;
    struct unproven_list list; /* oldest first */
    size_t n;
};

void unproven_set_init(struct unproven_set *s)
{
    TAILQ_INIT(&s->all);
    TAILQ_INIT(&s->foreign);
    LIST_INIT(&s->sources);
    s->by_addr = (struct addr_table){0};
    s->n = 0;
}

void unproven_set_done(struct unproven_set *s)
{
    while (!TAILQ_EMPTY(&s->all)) {
        struct unproven *u = TAILQ_FIRST(&s->all);
        u->evict(u);
    }
    addr_table_done(&s->by_addr);
}

/* A peer with an IPv6 address can usually use all addresses with the same upper 64 bits. */
void unproven_source_of(int fd, struct net_addr *ret)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    *ret = (struct net_addr){.len = 0};
    if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0 ||
        net_addr_from_sockaddr(ret, (struct sockaddr *)&ss, len) < 0)
        *ret = (struct net_addr){.len = 0};
    else if (ret->sa.sa_family == AF_INET6)
        memset(&ret->in6.sin6_addr.s6_addr[8], 0, 8);
}

static struct unproven_source *source_get(struct unproven_set *s, const struct net_addr *addr)
{
    struct addr_entry *known = addr_table_find(&s->by_addr, addr);
    if (known != NULL)
        return (struct unproven_source *)(void *)known;
    struct unproven_source *source = calloc(1, sizeof(*source));
    if (source == NULL)
        return NULL;
    source->by_addr.addr = *addr;
    if (addr_table_add(&s->by_addr, &source->by_addr) < 0) {
        free(source);
        return NULL;
    }
    TAILQ_INIT(&source->list);
    LIST_INSERT_HEAD(&s->sources, source, entry);
    return source;
}

static void source_leave(struct unproven *u)
{
    struct unproven_source *source = u->source;
    TAILQ_REMOVE(&source->list, u, by_source);
    u->source = NULL;
    if (--source->n > 0)
        return;
    LIST_REMOVE(source, entry);
    addr_table_remove(&u->set->by_addr, &source->by_addr);
    free(source);
}

int unproven_add(struct unproven_set *s, struct unproven *u, const struct net_addr *from,
                 uint64_t now_ns)
{
    struct unproven_source *source = source_get(s, from);
    if (source == NULL)
        return -ENOMEM;
    u->set = s;
    u->source = source;
    u->since_ns = now_ns;
    u->keep_until_ns = 0;
    u->foreign = u->waits = false;
    TAILQ_INSERT_TAIL(&source->list, u, by_source);
    source->n++;
    TAILQ_INSERT_TAIL(&s->all, u, by_age);
    s->n++;
    return 0;
}

void unproven_remove(struct unproven *u)
{
    if (u->set == NULL)
        return;
    if (u->foreign)
        TAILQ_REMOVE(&u->set->foreign, u, by_source);
    else
        source_leave(u);
    TAILQ_REMOVE(&u->set->all, u, by_age);
    u->set->n--;
    u->set = NULL;
}

void unproven_is_foreign(struct unproven *u)
{
    if (u->set == NULL || u->foreign)
        return;
    source_leave(u);
    u->foreign = true;
    TAILQ_INSERT_TAIL(&u->set->foreign, u, by_source);
}

void unproven_keep(struct unproven *u, uint64_t until_ns)
{
    u->keep_until_ns = until_ns;
}

void unproven_renew(struct unproven *u, uint64_t now_ns, bool waits)
{
    if (u->set == NULL)
        return;
    struct unproven_list *list = u->foreign ? &u->set->foreign : &u->source->list;
    TAILQ_REMOVE(list, u, by_source);
    TAILQ_INSERT_TAIL(list, u, by_source);
    TAILQ_REMOVE(&u->set->all, u, by_age);
    TAILQ_INSERT_TAIL(&u->set->all, u, by_age);
    u->since_ns = now_ns;
    u->waits = waits;
}

/* Return the oldest evictable connection of the largest source. */
static struct unproven *oldest_of_largest(const struct unproven_set *s, uint64_t now_ns)
{
    const struct unproven_source *source;
    const struct unproven_source *largest = NULL;
    LIST_FOREACH (source, &s->sources, entry)
        if (TAILQ_FIRST(&source->list)->keep_until_ns <= now_ns &&
            (largest == NULL || source->n > largest->n))
            largest = source;
    return largest != NULL ? TAILQ_FIRST(&largest->list) : NULL;
}

bool unproven_evict_one(struct unproven_set *s, uint64_t now_ns)
{
    struct unproven *u = TAILQ_FIRST(&s->foreign);
    if (u == NULL)
        u = oldest_of_largest(s, now_ns);
    if (u != NULL)
        u->evict(u);
    return u != NULL;
}

void unproven_expire(struct unproven_set *s, uint64_t now_ns, uint64_t max_age_ns)
{
    struct unproven *u;
    struct unproven *next;
    for (u = TAILQ_FIRST(&s->all); u != NULL && now_ns - u->since_ns >= max_age_ns; u = next) {
        next = TAILQ_NEXT(u, by_age);
        if (!u->waits)
            u->evict(u);
    }
}
