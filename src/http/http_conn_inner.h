/* One connection of a worker: one request, one reply. Internal to the server. */
#ifndef DD_HTTP_HTTP_CONN_INNER_H
#define DD_HTTP_HTTP_CONN_INNER_H

#include "http/http_server.h"
#include "net/listen.h"

#include <sys/queue.h>

struct event;

struct http_server {
    struct event_base *base;
    struct http_server_cfg cfg;
    int fd;
    uint16_t port;
    struct event *accept, *resume;
    struct rendezvous *rendezvous; /* NULL: not needed yet */
    TAILQ_HEAD(, http_conn) conns; /* oldest first */
    size_t nconns, max_conns;
    struct event *news;         /* timer: sends news to the other nodes */
    unsigned news_times;        /* number of exchanges of news */
    bool news_open;             /* an exchange of news is in progress */
    unsigned long long refused; /* number of connections that were not served */
};

void http_conn_new(struct http_server *s, int fd); /* takes fd */
void http_conn_free(struct http_conn *c);
/* Drop the oldest connection whose request is incomplete. False: there is none. */
bool http_conn_drop_oldest(struct http_server *s);
void http_server_tell_news(struct http_server *s); /* schedules an exchange of news */
void http_conn_answer_ready(
    struct http_server *s); /* replies to requests whose value has arrived */

#endif
