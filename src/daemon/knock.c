/* Agents that knock: connections that have not proven yet that they are of this job. There may be as
 * many as the job needs at once, and some more. When there are more still, whoever has the most of them
 * loses the oldest: a flood from elsewhere pushes out itself. */
#include "daemon/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    EXTRA_GUESTS = 256, /* links beyond the job's nodes */
    MAX_TRIES = 4,      /* connections that one guest may try at once */
    HELLO_MS = 10000,   /* time for hello and TLS */
};

/* A machine with connections of this kind. */
struct source {
    LIST_ENTRY(source) entry;
    struct net_addr addr;
    int n;
};

struct accepting {
    TAILQ_ENTRY(accepting) entry;
    struct daemon *daemon;
    struct source *source;
    struct link_accept *accept;
};

/* Who has an IPv6 address has, as a rule, all that begin with the same 64 bits. */
static void address_of(int fd, struct net_addr *ret)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof(ss);
    *ret = (struct net_addr){.len = 0};
    if (getpeername(fd, (struct sockaddr *)&ss, &len) < 0 ||
        net_addr_from_sockaddr(ret, (struct sockaddr *)&ss, len) < 0)
        *ret = (struct net_addr){.len = 0};
    else if (ret->sa.sa_family == AF_INET6)
        for (size_t i = 8; i < 16; i++)
            ret->in6.sin6_addr.s6_addr[i] = 0;
}

static bool is_same(const struct net_addr *a, const struct net_addr *b)
{
    return a->len == 0 || b->len == 0 ? a->len == b->len : net_addr_same_host(a, b);
}

static struct source *source_get(struct daemon *d, const struct net_addr *addr)
{
    struct source *s;
    LIST_FOREACH(s, &d->sources, entry)
        if (is_same(&s->addr, addr))
            return s;
    s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->addr = *addr;
    LIST_INSERT_HEAD(&d->sources, s, entry);
    return s;
}

static void source_put(struct source *s)
{
    if (s->n > 0)
        return;
    LIST_REMOVE(s, entry);
    free(s);
}

static void accepting_free(struct accepting *p)
{
    TAILQ_REMOVE(&p->daemon->accepting, p, entry);
    p->daemon->naccepting--;
    p->source->n--;
    source_put(p->source);
    link_accept_free(p->accept);
    free(p);
}

static void on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    struct accepting *p = arg;
    struct daemon *d = p->daemon;
    (void)why; /* logged by the link, with the caller's name */
    (void)a;
    accepting_free(p);
    if (l != NULL)
        guest_new(d, l, false);
}

/* The oldest connection of whoever has the most. */
static void make_room(struct daemon *d)
{
    const struct source *s;
    struct accepting *p;
    int most = 0;
    LIST_FOREACH(s, &d->sources, entry)
        most = s->n > most ? s->n : most;
    TAILQ_FOREACH(p, &d->accepting, entry)
        if (p->source->n == most) {
            accepting_free(p);
            return;
        }
}

void guests_accept(struct daemon *d, int fd)
{
    const struct link_accept_cfg cfg = {.job_id = d->cfg.job_id,
                                        .key = &d->cfg.key,
                                        .key_in = &d->cfg.key_in,
                                        .log = d->cfg.log,
                                        .timeout_ms = HELLO_MS,
                                        .shared = &d->shared};
    struct net_addr addr;
    address_of(fd, &addr);
    bool room = d->nguests < d->capacity + EXTRA_GUESTS;
    if (room && d->naccepting >= MAX_TRIES * d->capacity + EXTRA_GUESTS)
        make_room(d);
    struct source *s = room ? source_get(d, &addr) : NULL;
    struct accepting *p = s != NULL ? calloc(1, sizeof(*p)) : NULL;
    if (p == NULL) {
        if (s != NULL)
            source_put(s);
        close(fd);
        return;
    }
    *p = (struct accepting){.daemon = d, .source = s};
    s->n++;
    TAILQ_INSERT_TAIL(&d->accepting, p, entry);
    d->naccepting++;
    if (link_accept_start(&p->accept, d->base, fd, &cfg, on_accepted, p, NULL) < 0)
        accepting_free(p);
}

void guests_accept_end(struct daemon *d)
{
    while (!TAILQ_EMPTY(&d->accepting))
        accepting_free(TAILQ_FIRST(&d->accepting));
    link_shared_done(&d->shared);
}
