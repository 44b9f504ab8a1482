#include "net/handshake_pool.h"

#include "base/io.h"
#include "net/unproven.h"

#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAUSE_MS = 100 };

struct caller {
    struct unproven unproven;
    struct callers *all;
    struct link_accept *accept;
};

struct callers {
    struct callers_cfg cfg;
    struct link_shared shared;
    struct event *listener, *pause;
    struct unproven_set silent;
};

static void caller_free(struct caller *c)
{
    unproven_remove(&c->unproven);
    link_accept_free(c->accept);
    free(c);
}

static void evict(struct unproven *u)
{
    caller_free((struct caller *)(void *)((char *)u - offsetof(struct caller, unproven)));
}

static void on_accepted(void *arg, struct link_accept *accept, struct link *l, const char *why)
{
    struct caller *c = arg;
    const struct callers *all = c->all;
    (void)accept;
    (void)why; /* has been logged */
    caller_free(c);
    if (l != NULL)
        all->cfg.on_link(all->cfg.arg, l);
}

/* No file is left for him. The loop would tell of the same connection for ever. */
static void wait_for_files(struct callers *all)
{
    const struct timeval pause = dd_timeval(PAUSE_MS * DD_NS_PER_MS);
    if (!unproven_evict_one(&all->silent, dd_now_ns()) && event_add(all->pause, &pause) == 0)
        (void)event_del(all->listener);
}

static void on_pause(evutil_socket_t fd, short what, void *arg)
{
    struct callers *all = arg;
    (void)fd;
    (void)what;
    (void)event_add(all->listener, NULL);
}

static void on_connection(evutil_socket_t fd, short what, void *arg)
{
    struct callers *all = arg;
    (void)what;
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            wait_for_files(all);
        return;
    }
    struct net_addr source;
    const uint64_t now = dd_now_ns();
    const bool room = all->silent.n < all->cfg.most || unproven_evict_one(&all->silent, now);
    struct caller *c = room ? calloc(1, sizeof(*c)) : NULL;
    unproven_source_of(peer, &source);
    if (c == NULL || unproven_add(&all->silent, &c->unproven, &source, now) < 0) {
        free(c);
        close(peer);
        return;
    }
    if (all->cfg.receive > 0)
        (void)setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &all->cfg.receive, sizeof(int));
    c->all = all;
    c->unproven.evict = evict;
    if (link_accept_start(&c->accept, all->cfg.base, peer, &all->cfg.accept, on_accepted, c, NULL) <
        0)
        caller_free(c);
}

int callers_new(struct callers **ret, const struct callers_cfg *cfg)
{
    struct callers *all = calloc(1, sizeof(*all));
    if (all == NULL)
        return -ENOMEM;
    all->cfg = *cfg;
    unproven_set_init(&all->silent);
    all->cfg.accept.shared = &all->shared;
    all->listener = event_new(cfg->base, cfg->fd, EV_READ | EV_PERSIST, on_connection, all);
    all->pause = evtimer_new(cfg->base, on_pause, all);
    if (all->listener == NULL || all->pause == NULL || event_add(all->listener, NULL) < 0) {
        callers_free(all);
        return -ENOMEM;
    }
    *ret = all;
    return 0;
}

void callers_free(struct callers *all)
{
    if (all == NULL)
        return;
    unproven_set_done(&all->silent);
    if (all->listener != NULL)
        event_free(all->listener);
    if (all->pause != NULL)
        event_free(all->pause);
    link_shared_done(&all->shared);
    free(all);
}
