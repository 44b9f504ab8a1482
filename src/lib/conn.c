#include "lib/conn.h"

#include "base/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MS = 1000000,
    FIRST_PAUSE_MS = 20, /* pause between attempts to connect, doubled each time */
    LAST_PAUSE_MS = 1000,
    REFUSED_MS = 1000, /* the daemon listens before workers start, so a refused connection means
                          that it is gone */
};

/* ---- time ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
}

uint64_t deadline_in(int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : now_ns() + (uint64_t)timeout_ms * MS;
}

static uint64_t deadline_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Return the time left for poll(), rounded up and limited to one hour; the caller polls again. */
static int ms_until(uint64_t deadline)
{
    uint64_t now = now_ns();
    if (deadline <= now)
        return 0;
    uint64_t ms = deadline == UINT64_MAX ? 3600 * 1000 : (deadline - now + MS - 1) / MS;
    return ms < 3600 * 1000 ? (int)ms : 3600 * 1000;
}

void deadline_sleep(uint64_t deadline)
{
    for (int ms; (ms = ms_until(deadline)) > 0;)
        (void)poll(NULL, 0, ms);
}

int deadline_poll(int fd, short events, uint64_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, ms_until(deadline));
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0 && now_ns() >= deadline)
            return -ETIMEDOUT;
    }
}

/* ---- an exchange ---- */

static int gone(int error)
{
    return error == ECONNRESET || error == EPIPE || error == ETIMEDOUT || error == ENETDOWN
               ? -ECANCELED
               : -error;
}

static int conn_send_some(struct conn *c, struct wire *w, size_t *sent)
{
    while (*sent < w->out.len) {
        ssize_t n = send(c->fd, w->out.data + *sent, w->out.len - *sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno != EINTR)
            return gone(errno);
        *sent += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int receive_some(struct conn *c, struct wire *w)
{
    unsigned char piece[16 * 1024]; /* small, since the caller may run on a small stack */
    while (!wire_done(w)) {
        ssize_t n = recv(c->fd, piece, sizeof(piece), MSG_DONTWAIT);
        if (n == 0)
            return -ECANCELED;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return gone(errno);
        ssize_t used = wire_feed(w, piece, (size_t)n);
        if (used < 0)
            return (int)used;
        if (used < n)
            return -EPROTO; /* the server sent more data than requested */
    }
    return 0;
}

int conn_step(struct conn *c, struct wire *w, size_t *sent, short *events)
{
    if (w->rc < 0)
        return w->rc;
    int rc = conn_send_some(c, w, sent);
    int later = receive_some(
        c, w); /* if the peer closed the connection, its last data explains a failed send */
    if (later < 0)
        return later;
    if (rc < 0)
        return rc;
    if (*sent == w->out.len && wire_done(w))
        return 1;
    *events = POLLIN;
    if (*sent < w->out.len)
        *events |= POLLOUT;
    return 0;
}

int conn_call(struct conn *c, struct wire *w, uint64_t deadline)
{
    size_t sent = 0;
    short events;
    for (;;) {
        int rc = conn_step(c, w, &sent, &events);
        if (rc != 0)
            return rc < 0 ? rc : 0;
        rc = deadline_poll(c->fd, events, deadline);
        if (rc < 0)
            return rc;
    }
}

/* ---- opening a connection ---- */

int conn_addr(struct conn_addr *ret, const char *host, const char *port, struct dd_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc == EAI_NONAME) { /* ddrun sets a numeric address, but the user may have replaced it by a
                               name */
        hints.ai_flags = AI_NUMERICSERV;
        rc = getaddrinfo(host, port, &hints, &list);
    }
    if (rc != 0 || list->ai_addrlen > sizeof(ret->sa))
        return dd_err_set(err, -EINVAL, "MASTER_ADDR=%.200s, MASTER_PORT=%.20s: %s", host, port,
                          rc == EAI_SYSTEM ? strerror(errno)
                          : rc != 0        ? gai_strerror(rc)
                                           : "invalid address");
    memset(ret, 0, sizeof(*ret));
    memcpy(&ret->sa, list->ai_addr, list->ai_addrlen);
    ret->len = list->ai_addrlen;
    (void)snprintf(ret->text, sizeof(ret->text), "%.200s port %.20s", host, port);
    freeaddrinfo(list);
    return 0;
}

static int connect_once(int fd, const struct conn_addr *a, uint64_t deadline)
{
    int error = 0;
    socklen_t len = sizeof(error);
    dd_tcp_tune(fd);
    if (connect(fd, (const struct sockaddr *)(const void *)&a->sa, a->len) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    int rc = deadline_poll(fd, POLLOUT, deadline);
    if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        rc = -errno;
    return rc < 0 ? rc : -error;
}

static int conn_handshake(struct conn *c, uint64_t deadline)
{
    struct wire w;
    wire_init(&w, 0);
    wire_hello(&w, (uint32_t)getpid());
    int rc = conn_call(c, &w, deadline);
    wire_done_with(&w);
    return rc == -ECANCELED ? -EACCES : rc;
}

/* Sleep; return false if the deadline is reached first. */
static bool pause_for(int ms, uint64_t deadline)
{
    uint64_t until = deadline_min(deadline_in(ms), deadline);
    deadline_sleep(until);
    return until < deadline;
}

static int open_socket(const struct conn_addr *a, uint64_t deadline)
{
    const uint64_t gone_at = deadline_min(deadline, deadline_in(REFUSED_MS));
    for (int pause_ms = FIRST_PAUSE_MS;; pause_ms *= pause_ms < LAST_PAUSE_MS ? 2 : 1) {
        int fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            return -errno;
        int rc = connect_once(fd, a, deadline);
        if (rc == 0)
            return fd;
        close(fd);
        bool passes = rc == -ECONNREFUSED || rc == -ECONNRESET ||
                      rc == -EAGAIN; /* the backlog is full because many workers connect at once */
        if (!passes || !pause_for(pause_ms, rc == -ECONNREFUSED ? gone_at : deadline))
            return rc;
    }
}

int conn_open(struct conn **ret, const struct conn_addr *a, uint64_t deadline, struct dd_err *err)
{
    struct conn *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    c->fd = open_socket(a, deadline);
    const bool connected = c->fd >= 0;
    int rc = connected ? conn_handshake(c, deadline) : c->fd;
    if (rc == 0) {
        *ret = c;
        return 0;
    }
    conn_free(c);
    if (rc == -EACCES && connected)
        return dd_err_set(err, rc,
                          "lost the connection to the store at %s during the handshake; the store "
                          "accepts only workers of its own job",
                          a->text);
    if (rc == -EPROTO)
        return dd_err_set(err, rc, "the server at %s is not a store of ddrun", a->text);
    if (rc == -ECONNREFUSED)
        return dd_err_set(
            err, rc,
            "cannot reach the store of this round at %s: connection refused; nothing listens there",
            a->text);
    return dd_err_set(err, rc, "cannot reach the store of this round at %s: %s", a->text,
                      strerror(-rc));
}

void conn_free(struct conn *c)
{
    if (c == NULL)
        return;
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}
