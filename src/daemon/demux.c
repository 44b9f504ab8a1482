#include "daemon/demux.h"

#include "base/io.h"
#include "daemon/inner.h"
#include "net/hello.h"
#include "net/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ACCEPT_AT_ONCE = 64, /* then the others get a turn */
    UNPROVEN_MOST = 4096,
    UNPROVEN_PER_NODE = 4, /* beyond these: ways to this daemon that a guest may try at once */
    KEEP_MS = 500, /* for a node's answer, whatever the rate of a flood: torch's clients do not
                      connect again */
    SILENT_S = 10,
    HELD_BACK = 16, /* descriptors for all but accepted connections: key files, munged, helpers */
    PAUSE_MS = 20,
    SWEEP_MS = 1000,
};

struct visitor {
    TAILQ_ENTRY(visitor) entry;
    struct unproven unproven;
    struct question question;
    struct door *door;
    struct event *ev;
    int fd;
    enum owner owner;
    bool is_worker; /* it has sent the first byte of one */
};

struct door {
    struct daemon *daemon;
    int fd;
    int most_fds; /* numbers from here on are held back */
    size_t most;
    struct event *ev, *resume, *sweep;
    TAILQ_HEAD(, visitor) visitors;
    bool told_full;
};

static void visitor_free(struct visitor *v)
{
    TAILQ_REMOVE(&v->door->visitors, v, entry);
    unproven_remove(&v->unproven);
    admission_forget(&v->question);
    if (v->ev != NULL)
        event_free(v->ev);
    if (v->fd >= 0)
        close(v->fd);
    free(v);
}

static void refuse(struct visitor *v, const char *why)
{
    admission_refuse(v->door->daemon->admission, &v->question, why);
    visitor_free(v);
}

static void evict(struct unproven *u)
{
    struct visitor *v = (struct visitor *)(void *)((char *)u - offsetof(struct visitor, unproven));
    if (v->is_worker)
        refuse(v, "its node did not say in time whose it is");
    else
        visitor_free(v);
}

/* The owner was asked for while this connection was there; it must be there still (net/peer.h). */
static void admit(struct visitor *v)
{
    struct daemon *d = v->door->daemon;
    int fd = v->fd;
    if (!d->cfg.open_store && !net_peer_is_connected(fd)) {
        refuse(v, "it was lost before its owner was known");
        return;
    }
    v->fd = -1;
    visitor_free(v);
    (void)store_server_adopt(d->store, fd, true, NULL, NULL, NULL);
}

/* May free v. */
static void settle(struct visitor *v)
{
    if (v->owner == OWNER_SELF)
        unproven_remove(&v->unproven);
    if (v->owner == OWNER_OTHER)
        unproven_is_foreign(&v->unproven);
    if (!v->is_worker || v->owner == OWNER_ASKED)
        return;
    if (v->owner == OWNER_SELF)
        admit(v);
    else
        refuse(v, NULL);
}

static void on_answer(struct question *q, enum owner owner)
{
    struct visitor *v = (struct visitor *)(void *)((char *)q - offsetof(struct visitor, question));
    v->owner = owner;
    settle(v);
}

static void take_worker(struct visitor *v)
{
    event_del(v->ev); /* nothing is read before its owner is known */
    v->is_worker = true;
    if (v->door->daemon->cfg.open_store)
        v->owner = OWNER_SELF;
    if (v->owner == OWNER_UNKNOWN) /* its node may have joined since */
        v->owner = admission_ask(v->door->daemon->admission, &v->question, v->fd);
    settle(v);
}

static void take_agent(struct visitor *v)
{
    struct daemon *d = v->door->daemon;
    const bool foreign = v->owner == OWNER_OTHER;
    int fd = v->fd;
    v->fd = -1;
    visitor_free(v);
    if (d->machine == NULL)
        close(fd); /* standing: a store, no job to join */
    else
        guests_accept(d, fd, foreign);
}

static void on_first_byte(evutil_socket_t fd, short what, void *arg)
{
    struct visitor *v = arg;
    unsigned char first;
    (void)what;
    ssize_t n = recv(fd, &first, 1, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && first == HELLO_FIRST_BYTE)
        take_agent(v);
    else if (n == 1 && first < 0x20)
        take_worker(v);
    else
        visitor_free(v);
}

static void sweep_soon(struct door *d)
{
    const struct timeval t = dd_timeval(SWEEP_MS * DD_NS_PER_MS);
    if (!d->daemon->cfg.open_store &&
        !evtimer_pending(d->sweep,
                         NULL)) /* where nobody is asked for, old torch clients stay silent */
        evtimer_add(d->sweep, &t);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    struct door *d = arg;
    (void)fd;
    (void)what;
    unproven_expire(&d->daemon->unproven, dd_now_ns(), SILENT_S * DD_NS_PER_S);
    if (d->daemon->unproven.n > 0)
        sweep_soon(d);
}

/* Takes fd. */
static void visitor_new(struct door *d, int fd)
{
    struct net_addr source;
    struct visitor *v = calloc(1, sizeof(*v));
    if (v == NULL) {
        close(fd);
        return;
    }
    *v = (struct visitor){
        .door = d, .fd = fd, .unproven = {.evict = evict}, .question = {.answered = on_answer}};
    TAILQ_INSERT_TAIL(&d->visitors, v, entry);
    unproven_source_of(fd, &source);
    v->ev = event_new(d->daemon->base, fd, EV_READ | EV_PERSIST, on_first_byte, v);
    if (v->ev == NULL || event_add(v->ev, NULL) < 0 ||
        unproven_add(&d->daemon->unproven, &v->unproven, &source, dd_now_ns()) < 0) {
        visitor_free(v);
        return;
    }
    v->owner = d->daemon->cfg.open_store ? OWNER_UNKNOWN
                                         : admission_ask(d->daemon->admission, &v->question, fd);
    if (v->owner == OWNER_ASKED)
        unproven_keep(&v->unproven, dd_now_ns() + KEEP_MS * DD_NS_PER_MS);
    settle(v);
    sweep_soon(d);
}

/* The kernel gives the lowest free number. */
static bool has_descriptor(const struct door *d)
{
    int fd = fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0)
        close(fd);
    return fd >= 0 && fd < d->most_fds;
}

static bool has_room(struct door *d)
{
    struct unproven_set *s = &d->daemon->unproven;
    const uint64_t now = dd_now_ns();
    if (s->n >= d->most && !unproven_evict_one(s, now))
        return false;
    return has_descriptor(d) || (unproven_evict_one(s, now) && has_descriptor(d));
}

/* The others wait in the kernel's queue. */
static void pause_accepting(struct door *d)
{
    const struct timeval t = dd_timeval(PAUSE_MS * DD_NS_PER_MS);
    if (!d->told_full && d->daemon->unproven.n == 0) {
        dd_log(d->daemon->cfg.log, DD_LOG_WARN,
               "cannot accept more connections for now: the limit of open files is %d (ulimit -n)",
               d->most_fds + HELD_BACK);
        d->told_full = true;
    }
    event_del(d->ev);
    event_add(d->resume, &t);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct door *d = arg;
    event_add(d->ev, NULL);
}

static void on_connection(evutil_socket_t lfd, short what, void *arg)
{
    (void)what;
    struct door *d = arg;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        const bool room = has_room(d);
        int fd = room ? accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        if (fd >= 0) {
            visitor_new(d, fd);
            continue;
        }
        if (!room || errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            pause_accepting(d);
        return; /* else EAGAIN, or a caller that has left already */
    }
}

static int most_descriptors(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur > INT32_MAX)
        return INT32_MAX - HELD_BACK;
    return (int)l.rlim_cur - HELD_BACK;
}

int door_new(struct door **ret, struct daemon *daemon, int listen_fd, struct dd_err *err)
{
    struct door *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        close(listen_fd);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    *d = (struct door){.daemon = daemon, .fd = listen_fd, .most_fds = most_descriptors()};
    d->most = UNPROVEN_MOST + UNPROVEN_PER_NODE * (size_t)daemon->cfg.rdzv.capacity;
    TAILQ_INIT(&d->visitors);
    d->ev = event_new(daemon->base, listen_fd, EV_READ | EV_PERSIST, on_connection, d);
    d->resume = evtimer_new(daemon->base, on_resume, d);
    d->sweep = evtimer_new(daemon->base, on_sweep, d);
    if (d->ev == NULL || d->resume == NULL || d->sweep == NULL || event_add(d->ev, NULL) < 0) {
        door_free(d);
        return dd_err_set(err, -ENOMEM, "cannot watch the listening socket");
    }
    *ret = d;
    return 0;
}

void door_drop_workers(struct door *d)
{
    struct visitor *v;
    struct visitor *next;
    for (v = TAILQ_FIRST(&d->visitors); v != NULL; v = next) {
        next = TAILQ_NEXT(v, entry);
        if (v->is_worker)
            visitor_free(v);
    }
}

void door_free(struct door *d)
{
    if (d == NULL)
        return;
    while (!TAILQ_EMPTY(&d->visitors))
        visitor_free(TAILQ_FIRST(&d->visitors));
    struct event *events[] = {d->ev, d->resume, d->sweep};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    close(d->fd);
    free(d);
}
