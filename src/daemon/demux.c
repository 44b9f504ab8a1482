#include "daemon/demux.h"

#include "base/io.h"
#include "net/handshake_pool.h"
#include "net/hello.h"
#include "net/peer_uid.h"

#include <errno.h>
#include <event2/event.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    UNPROVEN_MAX = 4096,
    UNPROVEN_PER_NODE = 4, /* beyond UNPROVEN_MAX: connections that an agent may try in parallel */
    KEEP_MS = 5000, /* time that an agent has to report an owner, also during a flood: torch's
                     * clients do not reconnect */
    SILENT_S = 10,
    HELLO_MS = 10000, /* limit for each of hello, ClientHello and TLS handshake */
};

struct pending {
    TAILQ_ENTRY(pending) entry;
    struct unproven unproven;
    struct admission_query query;
    struct demux *demux;
    struct event *ev;
    int fd;
    enum owner owner;
    bool is_worker; /* the first byte is that of a worker */
};

struct demux {
    struct demux_cfg cfg;
    struct handshake_pool *pool;
    TAILQ_HEAD(, pending) pending;
    uint64_t refused; /* number of agents that failed to authenticate or sent invalid data */
};

static void pending_free(struct pending *p)
{
    TAILQ_REMOVE(&p->demux->pending, p, entry);
    unproven_remove(&p->unproven);
    admission_forget(&p->query);
    if (p->ev != NULL)
        event_free(p->ev);
    if (p->fd >= 0)
        close(p->fd);
    free(p);
}

static void pending_refuse(struct pending *p, const char *why)
{
    admission_refuse(p->demux->cfg.admission, &p->query, why);
    pending_free(p);
}

static void pending_evict(struct unproven *u)
{
    struct pending *p = (struct pending *)(void *)((char *)u - offsetof(struct pending, unproven));
    if (p->is_worker)
        pending_refuse(p, "its owner was not known in time");
    else
        pending_free(p);
}

/* Admit the connection if it is still open. Otherwise, the owner that was looked up may be that of
 * a later connection (net/peer_uid.h). */
static void pending_admit(struct pending *p)
{
    const struct demux_cfg *cfg = &p->demux->cfg;
    int fd = p->fd;
    if (!cfg->open_store && !net_peer_is_connected(fd)) {
        pending_refuse(p, "the connection was lost before its owner was known");
        return;
    }
    if (cfg->on_worker != NULL)
        cfg->on_worker(cfg->arg, &p->query.remote);
    p->fd = -1;
    pending_free(p);
    (void)store_server_adopt(cfg->store, fd, true, NULL, NULL, NULL);
}

/* May free p. */
static void pending_settle(struct pending *p)
{
    if (p->owner == OWNER_SELF)
        unproven_remove(&p->unproven);
    if (p->owner == OWNER_OTHER)
        unproven_is_foreign(&p->unproven);
    if (!p->is_worker || p->owner == OWNER_PENDING)
        return;
    if (p->owner == OWNER_SELF)
        pending_admit(p);
    else
        pending_refuse(p, NULL);
}

static void pending_on_owner(struct admission_query *q, enum owner owner)
{
    struct pending *p = (struct pending *)(void *)((char *)q - offsetof(struct pending, query));
    p->owner = owner;
    pending_settle(p);
}

static void pending_is_worker(struct pending *p)
{
    const struct demux_cfg *cfg = &p->demux->cfg;
    event_del(p->ev); /* read nothing before the owner is known */
    p->is_worker = true;
    if (cfg->open_store)
        p->owner = OWNER_SELF;
    if (p->owner == OWNER_UNKNOWN) /* the worker's node may have joined since */
        p->owner = admission_ask(cfg->admission, &p->query, p->fd);
    pending_settle(p);
}

static void pending_is_agent(struct pending *p)
{
    struct demux *d = p->demux;
    const bool foreign = p->owner == OWNER_OTHER;
    int fd = p->fd;
    p->fd = -1;
    pending_free(p);
    if (d->cfg.may_connect != NULL && d->cfg.may_connect(d->cfg.arg))
        handshake_pool_start(d->pool, fd, foreign);
    else
        close(fd);
}

static void pending_on_first_byte(evutil_socket_t fd, short what, void *arg)
{
    struct pending *p = arg;
    unsigned char first;
    (void)what;
    ssize_t n = recv(fd, &first, 1, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && first == HELLO_FIRST_BYTE)
        pending_is_agent(p);
    else if (n == 1 && first < 0x20)
        pending_is_worker(p);
    else
        pending_free(p);
}

/* Take fd, a new connection. */
static void demux_on_connection(void *arg, int fd)
{
    struct demux *d = arg;
    struct pending *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        close(fd);
        return;
    }
    *p = (struct pending){.demux = d,
                          .fd = fd,
                          .unproven = {.evict = pending_evict},
                          .query = {.answered = pending_on_owner}};
    TAILQ_INSERT_TAIL(&d->pending, p, entry);
    p->ev = event_new(d->cfg.base, fd, EV_READ | EV_PERSIST, pending_on_first_byte, p);
    if (p->ev == NULL || event_add(p->ev, NULL) < 0 ||
        handshake_pool_hold(d->pool, &p->unproven, fd) < 0) {
        pending_free(p);
        return;
    }
    p->owner = d->cfg.open_store ? OWNER_UNKNOWN : admission_ask(d->cfg.admission, &p->query, fd);
    if (p->owner == OWNER_PENDING)
        unproven_keep(&p->unproven, dd_now_ns() + KEEP_MS * DD_NS_PER_MS);
    pending_settle(p);
}

static void demux_on_link(void *arg, struct link *l)
{
    const struct demux *d = arg;
    d->cfg.on_link(d->cfg.arg, l);
}

static void demux_on_refused(void *arg, const struct net_addr *from, const char *why)
{
    struct demux *d = arg;
    d->cfg.on_refused(d->cfg.arg, ++d->refused, from, NULL, why);
}

int demux_new(struct demux **ret, const struct demux_cfg *cfg, struct dd_err *err)
{
    struct demux *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        close(cfg->listen_fd);
        return dd_err_set(err, -ENOMEM, "out of memory for the listening socket");
    }
    d->cfg = *cfg;
    TAILQ_INIT(&d->pending);
    struct handshake_pool_cfg pool = {
        .base = cfg->base,
        .accept = cfg->accept,
        .fd = cfg->listen_fd,
        .most = UNPROVEN_MAX + UNPROVEN_PER_NODE * (size_t)cfg->nodes,
        /* without owner look-up, silent clients of old torch releases are legitimate */
        .max_age_ns = cfg->open_store ? 0 : SILENT_S * DD_NS_PER_S,
        .on_connection = demux_on_connection,
        .on_link = demux_on_link,
        .on_refused = demux_on_refused,
        .arg = d};
    pool.accept.timeout_ms = HELLO_MS;
    int rc = handshake_pool_new(&d->pool, &pool, err);
    if (rc < 0) {
        demux_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

int demux_prepare(struct demux *d, struct dd_err *err)
{
    return handshake_pool_prepare(d->pool, err);
}

void demux_drop_workers(struct demux *d)
{
    struct pending *p;
    struct pending *next;
    for (p = TAILQ_FIRST(&d->pending); p != NULL; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->is_worker)
            pending_free(p);
    }
}

void demux_free(struct demux *d)
{
    if (d == NULL)
        return;
    while (!TAILQ_EMPTY(&d->pending))
        pending_free(TAILQ_FIRST(&d->pending));
    handshake_pool_free(d->pool);
    close(d->cfg.listen_fd);
    free(d);
}
