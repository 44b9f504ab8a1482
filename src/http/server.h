/* Horovod's rendezvous server for the workers of this node: HTTP on a loopback port.
 *
 * Own parsing on plain events, not evhttp: evhttp cannot refuse a foreign user's connection before
 * it reads from it, bounds neither the connections nor what all of them send together, goes on with
 * one that sends a byte now and then, and does not see that a client has gone whose reply is held
 * (all tried with libevent 2.1.12).
 */
#ifndef DD_HTTP_SERVER_H
#define DD_HTTP_SERVER_H

#include "base/err.h"
#include "base/log.h"
#include "http/rendezvous.h"
#include "net/peer.h"

#include <stdint.h>

struct event_base;
struct http_server;

struct http_server_cfg {
    struct rendezvous_cfg rendezvous; /* copied; its sizes are borrowed until the server is freed */
    const struct dd_log *log;
    struct net_peer *peer; /* borrowed until the server is freed */
    /* Gives the part to every node; http_server_take() comes for that of each other one. A name
     * that begins with '?' asks the others for theirs: http_server_asked(); and when all have come,
     * http_server_news_over(). 0 or a sentence. */
    int (*exchange)(void *arg, const char *name, const void *part, size_t len, struct dd_err *err);
    void *arg;
};

/* Listens on 127.0.0.1, on a port of the kernel's choice. All else is made when the first worker
 * connects. Gives *ret. */
int http_server_new(struct http_server **ret, struct event_base *base,
                    const struct http_server_cfg *cfg, struct dd_err *err);
void http_server_free(struct http_server *s); /* closes all connections */
uint16_t http_server_port(const struct http_server *s);
/* What another node has given. */
int http_server_take(struct http_server *s, const void *part, size_t len, struct dd_err *err);
void http_server_asked(struct http_server *s, const char *name);
void http_server_news_over(struct http_server *s);

#endif
