#include "daemon/door.h"

#include "base/io.h"
#include "net/hello.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPT_AT_ONCE = 64,    /* then the others get a turn */
    MAX_VISITORS = 65536,   /* connections that have not said a byte; the oldest goes first */
    PAUSE_MS = 100,         /* when the process is out of file descriptors */
};

struct visitor {
    TAILQ_ENTRY(visitor) entry;
    struct door *door;
    struct event *ev;
    int fd;
};

struct door {
    struct event_base *base;
    const struct dd_log *log;
    struct door_cb cb;
    int fd;
    struct event *ev;
    struct event *resume;
    TAILQ_HEAD(, visitor) visitors;
    int nvisitors;
    bool told_full;
};

static void visitor_free(struct visitor *v)
{
    TAILQ_REMOVE(&v->door->visitors, v, entry);
    v->door->nvisitors--;
    if (v->ev != NULL)
        event_free(v->ev);
    if (v->fd >= 0)
        close(v->fd);
    free(v);
}

/* The first byte is there: hand the connection on. */
static void on_first_byte(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct visitor *v = arg;
    const struct door_cb *cb = &v->door->cb;
    unsigned char first;
    ssize_t n = recv(fd, &first, 1, MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    bool agent = n == 1 && first == HELLO_FIRST_BYTE;
    bool worker = n == 1 && first < 0x20;
    if (agent || worker)
        v->fd = -1;
    visitor_free(v);
    if (agent)
        cb->on_agent(cb->arg, fd);
    else if (worker)
        cb->on_worker(cb->arg, fd);
}

static int visitor_new(struct door *d, int fd)
{
    if (d->nvisitors >= MAX_VISITORS)
        visitor_free(TAILQ_FIRST(&d->visitors));
    struct visitor *v = calloc(1, sizeof(*v));
    if (v == NULL)
        return -ENOMEM;
    v->door = d;
    v->fd = fd;
    TAILQ_INSERT_TAIL(&d->visitors, v, entry);
    d->nvisitors++;
    v->ev = event_new(d->base, fd, EV_READ | EV_PERSIST, on_first_byte, v);
    if (v->ev == NULL || event_add(v->ev, NULL) < 0) {
        v->fd = -1;
        visitor_free(v);
        return -ENOMEM;
    }
    return 0;
}

static void pause_accepting(struct door *d)
{
    struct timeval t = {.tv_usec = PAUSE_MS * 1000};
    if (!d->told_full)
        dd_log(d->log, DD_LOG_WARN, "cannot take more connections for now: %m");
    d->told_full = true;
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
        int fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && errno == EMFILE && !TAILQ_EMPTY(&d->visitors)) {
            visitor_free(TAILQ_FIRST(&d->visitors)); /* silent ones do not keep others out */
            continue;
        }
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                pause_accepting(d);
            return; /* EAGAIN, or a caller that has left already */
        }
        if (visitor_new(d, fd) < 0)
            close(fd);
    }
}

int door_new(struct door **ret, struct event_base *base, int listen_fd, const struct dd_log *log,
             const struct door_cb *cb, struct dd_err *err)
{
    struct door *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        close(listen_fd);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    *d = (struct door){.base = base, .log = log, .cb = *cb, .fd = listen_fd};
    TAILQ_INIT(&d->visitors);
    d->ev = event_new(base, listen_fd, EV_READ | EV_PERSIST, on_connection, d);
    d->resume = evtimer_new(base, on_resume, d);
    if (d->ev == NULL || d->resume == NULL || event_add(d->ev, NULL) < 0) {
        door_free(d);
        return dd_err_set(err, -ENOMEM, "cannot watch the listening socket");
    }
    *ret = d;
    return 0;
}

void door_free(struct door *d)
{
    if (d == NULL)
        return;
    while (!TAILQ_EMPTY(&d->visitors))
        visitor_free(TAILQ_FIRST(&d->visitors));
    if (d->ev != NULL)
        event_free(d->ev);
    if (d->resume != NULL)
        event_free(d->resume);
    close(d->fd);
    free(d);
}
