#include "http/http_server.h"

#include "base/io.h"
#include "http/http_conn_inner.h"
#include "net/peer_uid.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    ACCEPT_AT_ONCE = 64, /* connections per event, then other events get a turn */
    CONNS_PER_WORKER = 4,
    CONNS_BESIDE = 64,
    PAUSE_MS = 100, /* pause if no file descriptor is free */
};

static void refused(struct http_server *s, const char *why)
{
    s->refused++;
    if ((s->refused & (s->refused - 1)) ==
        0) /* log the 1st, 2nd, 4th, 8th … refusal, so that a flood cannot fill the log */
        dd_log(s->cfg.log, DD_LOG_WARN,
               "Horovod rendezvous: a connection was not accepted (no. %llu): %s",
               (unsigned long long)s->refused, why);
}

/* Create the rendezvous on first use: most workers do not use Horovod. */
static int need_rendezvous(struct http_server *s, struct dd_err *err)
{
    unsigned char seed[KV_SEED];
    if (s->rendezvous != NULL)
        return 0;
    if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        return dd_err_set(err, -EIO, "getrandom failed: %m");
    return rendezvous_new(&s->rendezvous, &s->cfg.rendezvous, seed, err);
}

/* Horovod's HTTP has no authentication: ask the kernel which user owns the other end. */
static bool is_ours(struct http_server *s, int fd)
{
    uid_t other;
    const int rc = net_peer_own_fd(s->cfg.peer, fd, &other);
    if (rc < 0)
        refused(s, rc == -EPERM ? "it belongs to another user"
                   : rc == -ENOTCONN
                       ? "the client disconnected before the kernel had reported its user"
                       : "the kernel does not report its user");
    return rc == 0;
}

static void take_connection(struct http_server *s, int fd)
{
    struct dd_err err;
    if (!is_ours(s, fd)) {
        close(fd);
        return;
    }
    if (s->nconns >= s->max_conns && !http_conn_drop_oldest(s)) {
        refused(s, "too many connections");
        close(fd);
        return;
    }
    int rc = need_rendezvous(s, &err);
    if (rc < 0) {
        close(fd);
        dd_log(s->cfg.log, DD_LOG_WARN, "Horovod rendezvous: cannot serve a connection: %s",
               err.text);
    } else {
        http_conn_new(s, fd);
    }
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    event_add(s->accept, NULL);
}

static void on_connection(evutil_socket_t lfd, short what, void *arg)
{
    struct http_server *s = arg;
    const struct timeval pause = {.tv_usec = PAUSE_MS * 1000};
    (void)what;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(lfd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            refused(s, strerror(errno));
            event_del(s->accept);
            event_add(s->resume, &pause);
        }
        if (fd < 0)
            break; /* EAGAIN, or the peer has already disconnected */
        take_connection(s, fd);
    }
}

/* ---- news for the other nodes ---- */

enum { NEWS_MS = 2 }; /* delay, so that values put at the same time are sent together */

static void news_name(const struct http_server *s, char ret[RENDEZVOUS_NAME_MAX])
{
    (void)snprintf(ret, RENDEZVOUS_NAME_MAX, "?hvd/%u", s->news_times);
}

void http_server_tell_news(struct http_server *s)
{
    const struct timeval soon = {.tv_usec = NEWS_MS * 1000};
    if (!s->news_open && rendezvous_has_news(s->rendezvous) && !evtimer_pending(s->news, NULL))
        event_add(s->news, &soon);
}

static void give_news(struct http_server *s)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(RENDEZVOUS_PART_MAX);
    char name[RENDEZVOUS_NAME_MAX];
    struct dd_err err;
    int rc = rendezvous_take_news(s->rendezvous, &out);
    if (rc < 0)
        (void)dd_err_set(&err, rc, "%s", strerror(-rc));
    news_name(s, name);
    s->news_open = true;
    if (rc == 0)
        rc = s->cfg.exchange(s->cfg.arg, name, out.data, out.len, &err);
    if (rc < 0)
        dd_log(s->cfg.log, DD_LOG_ERR,
               "cannot send the addresses of Horovod process sets to the other nodes: %s",
               err.text);
}

static void on_news(evutil_socket_t fd, short what, void *arg)
{
    struct http_server *s = arg;
    (void)fd;
    (void)what;
    if (!s->news_open)
        give_news(s);
}

void http_server_asked(struct http_server *s, const char *name)
{
    char ours[RENDEZVOUS_NAME_MAX];
    news_name(s, ours);
    if (!s->news_open && strcmp(name, ours) == 0 && need_rendezvous(s, NULL) == 0)
        give_news(s);
}

void http_server_news_over(struct http_server *s)
{
    s->news_open = false;
    s->news_times++;
    http_server_tell_news(s);
}

/* ---- interface ---- */

static int http_server_listen_here(struct http_server *s, struct dd_err *err)
{
    const uint16_t any = 0;
    s->fd = net_listen("127.0.0.1", &any, 1, &s->port, err);
    return s->fd < 0 ? s->fd : 0;
}

int http_server_new(struct http_server **ret, struct event_base *base,
                    const struct http_server_cfg *cfg, struct dd_err *err)
{
    struct http_server *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *s = (struct http_server){.base = base, .cfg = *cfg, .fd = -1};
    s->max_conns = CONNS_BESIDE +
                   CONNS_PER_WORKER * (size_t)cfg->rendezvous.sizes[cfg->rendezvous.node_rank];
    TAILQ_INIT(&s->conns);
    int rc = http_server_listen_here(s, err);
    if (rc == 0) {
        s->accept = event_new(base, s->fd, EV_READ | EV_PERSIST, on_connection, s);
        s->resume = evtimer_new(base, on_resume, s);
        s->news = evtimer_new(base, on_news, s);
        if (s->accept == NULL || s->resume == NULL || s->news == NULL ||
            event_add(s->accept, NULL) < 0)
            rc = dd_err_set(err, -ENOMEM, "out of memory");
    }
    if (rc < 0) {
        http_server_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void http_server_free(struct http_server *s)
{
    if (s == NULL)
        return;
    while (!TAILQ_EMPTY(&s->conns))
        http_conn_free(TAILQ_FIRST(&s->conns));
    rendezvous_free(s->rendezvous);
    if (s->accept != NULL)
        event_free(s->accept);
    if (s->resume != NULL)
        event_free(s->resume);
    if (s->news != NULL)
        event_free(s->news);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

int http_server_take(struct http_server *s, const void *part, size_t len, struct dd_err *err)
{
    int rc = need_rendezvous(s, err);
    if (rc == 0)
        rc = rendezvous_take_part(s->rendezvous, part, len, err);
    if (s->rendezvous != NULL)
        http_conn_answer_ready(s);
    return rc;
}
