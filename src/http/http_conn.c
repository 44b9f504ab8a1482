#include "http/http_conn_inner.h"

#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    REQUEST_S = 30, /* time limit for the request, and for the reply */
    HOLD_S = 1,     /* delay of the reply if the value is missing; the client then retries */
    HEAD_ROOM = 1024,
};

enum conn_state { CONN_HEAD, CONN_BODY, CONN_HELD, CONN_REPLY };

struct http_conn {
    struct http_server *server;
    TAILQ_ENTRY(http_conn) link;
    enum conn_state state;
    int fd;
    struct event *readable, *writable, *timer;
    struct dd_buf head;
    struct http_request request; /* the name is borrowed from head */
    struct kv_value *value;      /* body of the request or of the reply */
    size_t got;                  /* bytes of the body received */
    struct kv_waiter waiter;
    char reply[128];
    size_t reply_len, sent;
};

void http_conn_free(struct http_conn *c)
{
    struct http_server *s = c->server;
    kv_wait_end(rendezvous_kv(s->rendezvous), &c->waiter);
    kv_value_unref(c->value);
    TAILQ_REMOVE(&s->conns, c, link);
    s->nconns--;
    if (c->readable != NULL)
        event_free(c->readable);
    if (c->writable != NULL)
        event_free(c->writable);
    if (c->timer != NULL)
        event_free(c->timer);
    dd_buf_done(&c->head);
    close(c->fd);
    free(c);
}

bool http_conn_drop_oldest(struct http_server *s)
{
    struct http_conn *c;
    TAILQ_FOREACH (c, &s->conns, link)
        if (c->state == CONN_HEAD || c->state == CONN_BODY) {
            http_conn_free(c);
            return true;
        }
    return false;
}

/* ---- replies ---- */

/* Send the reply. May free c. */
static void http_conn_send_some(struct http_conn *c)
{
    const size_t body = c->value != NULL ? c->value->len : 0;
    while (c->sent < c->reply_len + body) {
        const size_t of_body = c->sent > c->reply_len ? c->sent - c->reply_len : 0;
        const size_t of_head = c->sent - of_body;
        struct iovec iov[2] = {{c->reply + of_head, c->reply_len - of_head},
                               {body > 0 ? c->value->data + of_body : NULL, body - of_body}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t n = sendmsg(
            c->fd, &m,
            MSG_NOSIGNAL); /* in one write: the client reads the body together with the head */
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN && event_add(c->writable, NULL) == 0)
            return;
        if (n < 0)
            break;
        c->sent += (size_t)n;
    }
    http_conn_free(c);
}

static void http_conn_on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    http_conn_send_some(arg);
}

/* Src: Horovod 0.28.1: the client recognizes only this spelling of Content-Length, and drops the
 * body of a reply without it. */
static void reply(struct http_conn *c, int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"}, {404, "Not Found"}, {413, "Content Too Large"}, {507, "Insufficient Storage"}};
    const struct timeval limit = {.tv_sec = REQUEST_S};
    const char *text = "Bad Request";
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].status == status)
            text = texts[i].text;
    c->state = CONN_REPLY;
    event_del(c->readable);
    event_add(c->timer, &limit);
    c->reply_len = (size_t)snprintf(
        c->reply, sizeof(c->reply),
        "HTTP/1.1 %d %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n", status, text,
        c->value != NULL ? c->value->len : 0);
    http_conn_send_some(c);
}

static void drop_value(struct http_conn *c)
{
    kv_value_unref(c->value);
    c->value = NULL;
}

void http_conn_answer_ready(struct http_server *s)
{
    struct kv_waiter *w;
    while ((w = kv_ready(rendezvous_kv(s->rendezvous))) != NULL) {
        struct http_conn *c = (struct http_conn *)(void *)((char *)w -
                                                           offsetof(struct http_conn, waiter));
        c->value = DD_TAKE(w->value);
        reply(c, 200);
    }
}

/* ---- requests ---- */

static void exchange(struct http_server *s)
{
    struct rendezvous_part part = {.data = {0}};
    struct dd_err err;
    int rc = rendezvous_next_part(s->rendezvous, &part);
    if (rc == 0)
        return;
    if (rc < 0)
        (void)dd_err_set(&err, rc, "%s", rc == -EMSGSIZE ? "they exceed 16 MiB" : "out of memory");
    else
        rc = s->cfg.exchange(s->cfg.arg, part.name, part.data.data, part.data.len, &err);
    if (rc < 0)
        dd_log(s->cfg.log, DD_LOG_ERR,
               "cannot send the addresses of this node's Horovod workers to the other nodes: %s",
               err.text);
    dd_buf_done(&part.data);
}

/* Serve a complete request. */
static void http_conn_serve(struct http_conn *c)
{
    const struct timeval hold = {.tv_sec = HOLD_S};
    struct http_server *s = c->server;
    struct rendezvous *r = s->rendezvous;
    int status = 0;
    if (c->request.method == HTTP_PUT)
        status = rendezvous_put(r, c->request.name, DD_TAKE(c->value));
    else if (c->request.method == HTTP_DELETE)
        status = rendezvous_delete(r, c->request.name);
    else
        status = rendezvous_get(r, c->request.name, &c->waiter, &c->value);
    if (status == 0) {
        c->state = CONN_HELD;
        event_add(c->timer, &hold);
        return;
    }
    const bool put = c->request.method == HTTP_PUT;
    reply(c, status);
    if (put) {
        http_conn_answer_ready(s);
        exchange(s);
        http_server_tell_news(s);
    }
}

static int make_body(struct http_conn *c)
{
    int rc = c->request.method == HTTP_PUT
                 ? kv_value_new(&c->value, rendezvous_kv(c->server->rendezvous), c->request.body)
                 : 0;
    return rc == 0 ? 0 : rc == -EMSGSIZE ? 413 : 507;
}

/* Start the body with the bytes received after the head. More bytes than the body are an error. */
static void begin_body(struct http_conn *c, size_t head)
{
    const size_t more = c->head.len - head;
    int status = more > c->request.body ? 400 : make_body(c);
    if (status != 0) {
        reply(c, status);
        return;
    }
    c->state = CONN_BODY;
    if (more > 0)
        memcpy(c->value->data, c->head.data + head, more);
    c->got = more;
    if (c->got == c->request.body)
        http_conn_serve(c);
}

static void take_head(struct http_conn *c)
{
    int rc = http_request_parse(&c->request, (const char *)c->head.data, c->head.len);
    if (rc < 0)
        reply(c, 400);
    else if (rc > 0)
        begin_body(c, (size_t)rc);
}

static ssize_t read_head(struct http_conn *c)
{
    if (dd_buf_reserve(&c->head, HEAD_ROOM) < 0)
        return -1;
    ssize_t n = recv(c->fd, c->head.data + c->head.len, HEAD_ROOM, 0);
    c->head.len += n > 0 ? (size_t)n : 0;
    return n;
}

static ssize_t read_body(struct http_conn *c)
{
    ssize_t n = recv(c->fd, c->value->data + c->got, c->request.body - c->got, 0);
    c->got += n > 0 ? (size_t)n : 0;
    return n;
}

static void http_conn_on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    char more;
    (void)what;
    ssize_t n = c->state == CONN_HEAD   ? read_head(c)
                : c->state == CONN_BODY ? read_body(c)
                                        : recv(fd, &more, 1, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || c->state == CONN_HELD) /* disconnected, or a second request was sent */
        http_conn_free(c);
    else if (c->state == CONN_HEAD)
        take_head(c);
    else if (c->got == c->request.body)
        http_conn_serve(c);
}

static void http_conn_on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    (void)fd;
    (void)what;
    if (c->state != CONN_HELD) {
        http_conn_free(c);
        return;
    }
    kv_wait_end(rendezvous_kv(c->server->rendezvous), &c->waiter);
    drop_value(c);
    reply(c, 404);
}

void http_conn_new(struct http_server *s, int fd)
{
    const struct timeval limit = {.tv_sec = REQUEST_S};
    struct http_conn *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        close(fd);
        return;
    }
    *c = (struct http_conn){.server = s, .fd = fd, .head = DD_BUF_INIT(HTTP_HEAD_MAX + HEAD_ROOM)};
    TAILQ_INSERT_TAIL(&s->conns, c, link);
    s->nconns++;
    c->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, http_conn_on_readable, c);
    c->writable = event_new(s->base, fd, EV_WRITE, http_conn_on_writable, c);
    c->timer = evtimer_new(s->base, http_conn_on_timer, c);
    if (c->readable == NULL || c->writable == NULL || c->timer == NULL ||
        event_add(c->readable, NULL) < 0 || event_add(c->timer, &limit) < 0)
        http_conn_free(c);
}
