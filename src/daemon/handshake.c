/* Agents' connections until they have proved the job's key. Their number is bounded together with
 * that of all unproven connections (demux.c); what each may take is bounded by net/link. */
#include "daemon/inner.h"

#include "base/io.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    EXTRA_GUESTS = 256, /* links beyond the job's nodes */
    HELLO_MS = 10000,   /* time for hello and TLS */
};

struct accepting {
    struct unproven unproven;
    TAILQ_ENTRY(accepting) entry;
    struct daemon *daemon;
    struct link_accept *accept;
    struct net_addr source;
};

static void accepting_free(struct accepting *p)
{
    TAILQ_REMOVE(&p->daemon->accepting, p, entry);
    unproven_remove(&p->unproven);
    link_accept_free(p->accept);
    free(p);
}

static void evict(struct unproven *u)
{
    accepting_free((struct accepting *)(void *)((char *)u - offsetof(struct accepting, unproven)));
}

static void on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    struct accepting *p = arg;
    struct daemon *d = p->daemon;
    if (link_accept_is_suspect(a)) /* logged by the link, with the caller's name */
        events_refused(d, ++d->links_refused, &p->source, NULL, why);
    accepting_free(p);
    if (l != NULL)
        guest_new(d, l, false);
}

void guests_accept(struct daemon *d, int fd, bool foreign)
{
    const struct link_accept_cfg cfg = {.job_id = d->cfg.job_id,
                                        .key = &d->cfg.key,
                                        .key_in = &d->cfg.key_in,
                                        .log = d->cfg.log,
                                        .timeout_ms = HELLO_MS,
                                        .shared = &d->shared};
    struct accepting *p = d->nguests < d->capacity + EXTRA_GUESTS ? calloc(1, sizeof(*p)) : NULL;
    if (p == NULL) {
        close(fd);
        return;
    }
    *p = (struct accepting){.daemon = d, .unproven = {.evict = evict}};
    TAILQ_INSERT_TAIL(&d->accepting, p, entry);
    unproven_source_of(fd, &p->source);
    if (unproven_add(&d->unproven, &p->unproven, &p->source, dd_now_ns()) < 0) {
        close(fd);
        accepting_free(p);
        return;
    }
    if (foreign)
        unproven_is_foreign(&p->unproven);
    if (link_accept_start(&p->accept, d->base, fd, &cfg, on_accepted, p, NULL) < 0)
        accepting_free(p);
}

void guests_accept_end(struct daemon *d)
{
    while (!TAILQ_EMPTY(&d->accepting))
        accepting_free(TAILQ_FIRST(&d->accepting));
    link_shared_done(&d->shared);
}
