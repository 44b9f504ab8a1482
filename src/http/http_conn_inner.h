/* One connection of a worker: one request, one reply. For the server alone. */
#ifndef DD_HTTP_HTTP_CONN_INNER_H
#define DD_HTTP_HTTP_CONN_INNER_H

#include "http/server.h"
#include "net/listen.h"

#include <sys/queue.h>

struct event;

struct http_server {
    struct event_base *base;
    struct http_server_cfg cfg;
    int fd;
    uint16_t port;
    struct event *accept, *resume;
    struct rendezvous *rendezvous; /* NULL: nobody has come yet */
    TAILQ_HEAD(, http_conn) conns; /* the oldest first */
    size_t nconns, max_conns;
    struct event *news;  /* timer: tells the other nodes what is new */
    unsigned news_times; /* that has been done */
    bool news_open;      /* and not all have told theirs */
    unsigned long long refused;
};

void http_conn_new(struct http_server *s, int fd); /* takes fd */
void http_conn_free(struct http_conn *c);
bool http_conn_drop_oldest(
    struct http_server *s); /* of those whose request is not whole; false: none */
void http_server_tell_news(struct http_server *s);  /* soon, if there are any */
void http_conn_answer_ready(struct http_server *s); /* whose values have come */

#endif
