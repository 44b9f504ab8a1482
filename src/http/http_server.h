/* Horovod's rendezvous server for the workers of this node: HTTP on a loopback port.
 *
 * It does not use evhttp, because evhttp cannot refuse another user's connection before reading
 * from it, bounds neither the number of connections nor their total data, keeps a connection that
 * sends one byte now and then, and does not notice that a client whose reply is delayed has
 * disconnected (all tested with libevent 2.1.12). */
#ifndef DD_HTTP_HTTP_SERVER_H
#define DD_HTTP_HTTP_SERVER_H

#include "base/err.h"
#include "base/log.h"
#include "http/rendezvous.h"
#include "net/peer_uid.h"

#include <stdint.h>

struct event_base;
struct http_server;

struct http_server_cfg {
    struct rendezvous_cfg rendezvous; /* copied; its sizes are borrowed until the server is freed */
    const struct dd_log *log;
    struct net_peer *peer; /* borrowed until the server is freed */
    /* Sends the part to every node; http_server_take() is called with the part of each other node.
     * A name that starts with '?' asks the other nodes for their parts with http_server_asked();
     * http_server_news_over() is called once all parts have arrived. 0, or -errno with a message.
     */
    int (*exchange)(void *arg, const char *name, const void *part, size_t len, struct dd_err *err);
    void *arg;
};

/* Listen on 127.0.0.1, on a port that the kernel chooses. The rendezvous is created when the first
 * worker connects or the first part arrives from another node. */
int http_server_new(struct http_server **ret, struct event_base *base,
                    const struct http_server_cfg *cfg, struct dd_err *err);
void http_server_free(struct http_server *s); /* closes all connections */
uint16_t http_server_port(const struct http_server *s);
/* Process the part that another node has sent through its exchange(). */
int http_server_take(struct http_server *s, const void *part, size_t len, struct dd_err *err);
void http_server_asked(struct http_server *s, const char *name);
void http_server_news_over(struct http_server *s);

#endif
