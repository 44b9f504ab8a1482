#include "agent/relayed_store.h"

#include "agent/agent.h"
#include "agent/spec.h"
#include "net/listen.h"
#include "net/peer_uid.h"
#include "store/store_server.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPTS_AT_ONCE = 64, /* connections per event, so that other events are not delayed */
    RESUME_MS = 100,      /* pause if no file descriptor is free */
};

struct relayed_store {
    const struct round *round;
    struct store_server *server;
    struct event *accept, *resume; /* NULL: no connection is accepted */
    int fd;
    uint64_t refused;
    char port[8];
};

/* ---- connections of workers ---- */

/* Log the 1st, 2nd, 4th, 8th … failure, so that a flood of connections cannot fill the log. */
static void relayed_store_refused(struct relayed_store *s, const char *why)
{
    s->refused++;
    if ((s->refused & (s->refused - 1)) == 0)
        dd_log(s->round->cfg->log, DD_LOG_WARN,
               "did not accept a connection to the store (no. %llu): %s",
               (unsigned long long)s->refused, why);
}

static void relayed_store_take(struct relayed_store *s, int fd)
{
    uid_t other;
    const int rc = net_peer_own_fd(s->round->peer, fd, &other);
    if (rc == 0) {
        (void)store_server_adopt(s->server, fd, true, NULL, NULL, NULL);
        return;
    }
    close(fd);
    relayed_store_refused(s, rc == -EPERM      ? "it belongs to another user"
                             : rc == -ENOTCONN ? "it was closed before its owner was known"
                                               : "the kernel reports no owner");
}

static void relayed_store_on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct relayed_store *s = arg;
    (void)fd;
    (void)what;
    event_add(s->accept, NULL);
}

static void relayed_store_on_connection(evutil_socket_t lfd, short what, void *arg)
{
    struct relayed_store *s = arg;
    const struct timeval pause = {.tv_usec = RESUME_MS * 1000};
    (void)what;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            relayed_store_refused(s, strerror(errno));
            event_del(s->accept);
            event_add(s->resume, &pause);
        }
        if (fd < 0)
            break; /* EAGAIN, or the peer has already disconnected */
        relayed_store_take(s, fd);
    }
}

static void relayed_store_stop_listening(struct relayed_store *s)
{
    if (s->accept != NULL)
        event_free(s->accept);
    if (s->resume != NULL)
        event_free(s->resume);
    s->accept = s->resume = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* ---- hooks ---- */

static void relayed_store_send(void *arg, const void *p, size_t n)
{
    const struct relayed_store *s = arg;
    s->round->port->send_store(s->round->port_arg, p, n);
}

static void relayed_store_end(void *state, const struct round *r)
{
    struct relayed_store *s = state;
    (void)r;
    relayed_store_stop_listening(s);
    store_server_free(s->server);
    free(s);
}

static int relayed_store_listen(struct relayed_store *s, struct dd_err *err)
{
    const uint16_t any = 0;
    uint16_t port;
    s->fd = net_listen(RELAYED_STORE_ADDR, &any, 1, &port, err);
    if (s->fd < 0)
        return s->fd;
    (void)snprintf(s->port, sizeof(s->port), "%u", port);
    s->accept = event_new(s->round->base, s->fd, EV_READ | EV_PERSIST, relayed_store_on_connection,
                          s);
    s->resume = evtimer_new(s->round->base, relayed_store_on_resume, s);
    if (s->accept == NULL || s->resume == NULL || event_add(s->accept, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int relayed_store_prepare(void **state, const struct round *r, struct dd_err *err)
{
    struct store_limits limits;
    if (!r->cfg->relay_store)
        return 0;
    struct relayed_store *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *s = (struct relayed_store){.round = r, .fd = -1};
    store_limits_default(&limits);
    int rc = store_server_new(&s->server, r->base, r->cfg->log, &limits, STORE_OLD_REFUSE, err);
    if (rc == 0)
        rc = relayed_store_listen(s, err);
    if (rc == 0 &&
        store_server_relay(s->server, (uint32_t)r->plan.round, relayed_store_send, s) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory for the relay of the store");
    if (rc < 0)
        relayed_store_end(s, r);
    else
        *state = s;
    return rc;
}

static void relayed_store_input(void *state, const struct round *r, struct spec_input *in)
{
    const struct relayed_store *s = state;
    (void)r;
    in->store_addr = RELAYED_STORE_ADDR;
    in->store_port = s->port;
}

/* When the link is lost, so is the daemon's store: close the connections of the workers. */
static void relayed_store_message(void *state, const struct round *r, const struct round_message *m)
{
    struct relayed_store *s = state;
    struct dd_err err;
    if (m->type == ROUND_LINK_LOST) {
        relayed_store_stop_listening(s);
        store_server_reset(s->server);
    } else if (m->type == ROUND_STORE && store_server_take(s->server, m->data, m->len, &err) < 0) {
        dd_log(r->cfg->log, DD_LOG_WARN, "%s", err.text);
        r->port->refuse_store(r->port_arg); /* workers could wait for a reply forever */
    }
}

const struct round_feature relayed_store_feature = {
    .name = "store",
    .prepare = relayed_store_prepare,
    .spec_input = relayed_store_input,
    .message = relayed_store_message,
    .end = relayed_store_end,
};
