#include "net/handshake_pool.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPT_AT_ONCE = 64, /* connections per event, then other events get a turn */
    PAUSE_MS = 20,
    SWEEP_MS = 1000,
    FDS_RESERVED = 16, /* descriptors for key files, munged, helpers and files that are written */
};

struct handshake {
    struct unproven unproven;
    struct handshake_pool *pool;
    struct link_accept *accept;
    struct net_addr source;
};

struct handshake_pool {
    struct handshake_pool_cfg cfg;
    struct link_shared shared;
    struct unproven_set unproven;
    struct event *listener, *resume, *sweep;
    int fds_limit;     /* descriptors from this number on are reserved */
    uint64_t swept_ns; /* time at which the next sweep was scheduled */
    bool reported_full;
};

/* ---- handshakes ---- */

static void handshake_free(struct handshake *h)
{
    unproven_remove(&h->unproven);
    link_accept_free(h->accept);
    free(h);
}

static void handshake_evict(struct unproven *u)
{
    handshake_free((struct handshake *)(void *)((char *)u - offsetof(struct handshake, unproven)));
}

static void handshake_on_accepted(void *arg, struct link_accept *a, struct link *l, const char *why)
{
    struct handshake *h = arg;
    const struct handshake_pool_cfg *cfg = &h->pool->cfg;
    if (cfg->on_refused != NULL && link_accept_is_suspect(a))
        cfg->on_refused(cfg->arg, &h->source, why);
    handshake_free(h);
    if (l != NULL)
        cfg->on_link(cfg->arg, l);
}

static void handshake_on_progress(void *arg, bool waits)
{
    struct handshake *h = arg;
    unproven_renew(&h->unproven, dd_now_ns(), waits);
}

void handshake_pool_start(struct handshake_pool *p, int fd, bool foreign)
{
    struct handshake *h = calloc(1, sizeof(*h));
    if (h == NULL) {
        close(fd);
        return;
    }
    h->pool = p;
    h->unproven.evict = handshake_evict;
    unproven_source_of(fd, &h->source);
    if (handshake_pool_hold(p, &h->unproven, fd) < 0) {
        close(fd);
        free(h);
        return;
    }
    if (foreign)
        unproven_is_foreign(&h->unproven);
    const struct link_accept_cb cb = {
        .done = handshake_on_accepted, .on_progress = handshake_on_progress, .arg = h};
    if (link_accept_start(&h->accept, p->cfg.base, fd, &p->cfg.accept, &cb, NULL) < 0)
        handshake_free(h);
}

/* ---- bounds ---- */

static void pool_arm_sweep(struct handshake_pool *p)
{
    const struct timeval t = dd_timeval(SWEEP_MS * DD_NS_PER_MS);
    if (p->cfg.max_age_ns == 0 || evtimer_pending(p->sweep, NULL))
        return;
    p->swept_ns = dd_now_ns();
    evtimer_add(p->sweep, &t);
}

/* A late sweep means that this process was suspended or busy: what the peers have sent meanwhile
 * may still be unread. */
static void pool_on_sweep(evutil_socket_t fd, short what, void *arg)
{
    struct handshake_pool *p = arg;
    const uint64_t now = dd_now_ns();
    (void)fd;
    (void)what;
    if (now - p->swept_ns < 2 * SWEEP_MS * DD_NS_PER_MS)
        unproven_expire(&p->unproven, now, p->cfg.max_age_ns);
    if (p->unproven.n > 0)
        pool_arm_sweep(p);
}

int handshake_pool_hold(struct handshake_pool *p, struct unproven *u, int fd)
{
    struct net_addr source;
    unproven_source_of(fd, &source);
    pool_arm_sweep(p);
    return unproven_add(&p->unproven, u, &source, dd_now_ns());
}

/* True if an unreserved descriptor is free: the kernel assigns the lowest free number. */
static bool pool_has_descriptor(const struct handshake_pool *p)
{
    int fd = fcntl(p->cfg.fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0 && fd < p->fds_limit;
}

static bool pool_is_full(const struct handshake_pool *p)
{
    return p->unproven.n >= p->cfg.most || !pool_has_descriptor(p);
}

static bool pool_is_pending(const struct handshake_pool *p)
{
    struct pollfd pending = {.fd = p->cfg.fd, .events = POLLIN};
    return poll(&pending, 1, 0) == 1;
}

/* ---- the listener ---- */

/* Leave further connections in the kernel's queue. Without a pause the level-triggered event would
 * spin. error: why none can be accepted. */
static void pool_pause(struct handshake_pool *p, int error)
{
    const struct timeval t = dd_timeval(PAUSE_MS * DD_NS_PER_MS);
    if (!p->reported_full && p->unproven.n == 0) {
        if (error == EMFILE)
            dd_log(p->cfg.accept.log, DD_LOG_WARN,
                   "cannot accept connections: %s (limit of this process: %d); retrying"
                   "\n  tip: raise 'ulimit -n'",
                   strerror(error), p->fds_limit + FDS_RESERVED);
        else
            dd_log(p->cfg.accept.log, DD_LOG_WARN, "cannot accept connections: %s; retrying%s",
                   strerror(error), error == ENFILE ? "\n  tip: raise the sysctl fs.file-max" : "");
        p->reported_full = true;
    }
    if (event_add(p->resume, &t) == 0)
        (void)event_del(p->listener);
}

static void pool_on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct handshake_pool *p = arg;
    (void)fd;
    (void)what;
    (void)event_add(p->listener, NULL);
}

static void pool_take(struct handshake_pool *p, int fd)
{
    if (p->cfg.receive > 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &p->cfg.receive, sizeof(int));
    if (p->cfg.on_connection != NULL)
        p->cfg.on_connection(p->cfg.arg, fd);
    else
        handshake_pool_start(p, fd, false);
}

static void pool_on_connection(evutil_socket_t lfd, short what, void *arg)
{
    struct handshake_pool *p = arg;
    (void)what;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        if (pool_is_full(p)) {
            if (!pool_is_pending(p))
                return; /* nothing to accept, so nothing is evicted */
            if (!unproven_evict_one(&p->unproven, dd_now_ns()) || pool_is_full(p)) {
                pool_pause(p, EMFILE);
                return;
            }
        }
        int fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            pool_take(p, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pool_pause(p, errno);
        return; /* EAGAIN, or the peer has already disconnected */
    }
}

/* ---- life ---- */

static int pool_fds_limit(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur > INT32_MAX)
        return INT32_MAX - FDS_RESERVED;
    return (int)l.rlim_cur - FDS_RESERVED;
}

int handshake_pool_new(struct handshake_pool **ret, const struct handshake_pool_cfg *cfg,
                       struct dd_err *err)
{
    struct handshake_pool *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for the listener");
    p->cfg = *cfg;
    p->cfg.accept.shared = &p->shared;
    p->fds_limit = pool_fds_limit();
    unproven_set_init(&p->unproven);
    p->listener = event_new(cfg->base, cfg->fd, EV_READ | EV_PERSIST, pool_on_connection, p);
    p->resume = evtimer_new(cfg->base, pool_on_resume, p);
    p->sweep = evtimer_new(cfg->base, pool_on_sweep, p);
    if (p->listener == NULL || p->resume == NULL || p->sweep == NULL ||
        event_add(p->listener, NULL) < 0) {
        handshake_pool_free(p);
        return dd_err_set(err, -ENOMEM, "cannot watch the listening socket: out of memory");
    }
    *ret = p;
    return 0;
}

int handshake_pool_prepare(struct handshake_pool *p, struct dd_err *err)
{
    return link_shared_prepare(&p->shared, p->cfg.base, p->cfg.accept.key, p->cfg.accept.key_in,
                               err);
}

void handshake_pool_free(struct handshake_pool *p)
{
    if (p == NULL)
        return;
    unproven_set_done(&p->unproven);
    struct event *events[] = {p->listener, p->resume, p->sweep};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    link_shared_done(&p->shared);
    free(p);
}
