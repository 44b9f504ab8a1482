#include "net/tls_inner.h"

#include "net/crypto_inner.h"

#include <errno.h>
#include <event2/util.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One context serves both directions; the key is a property of each connection. */
struct net_tls {
    const struct net_crypto *crypto;
    struct ssl_ctx_st *ctx;
};

int net_tls_new(struct net_tls **ret, struct dd_err *err)
{
    const struct net_crypto *k = net_crypto_load(err);
    if (k == NULL)
        return -ELIBACC;
    struct net_tls *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for TLS");
    t->crypto = k;
    int rc = k->tls_new(&t->ctx, err);
    if (rc < 0)
        free(t);
    else
        *ret = t;
    return rc;
}

void net_tls_free(struct net_tls *t)
{
    if (t == NULL)
        return;
    t->crypto->tls_free(t->ctx); /* connections hold references of their own */
    free(t);
}

int net_tls_open(struct bufferevent **ret, const struct net_tls *t, struct event_base *base, int fd,
                 const struct net_tls_open *how, struct dd_err *err)
{
    return t->crypto->tls_open(ret, t->ctx, base, fd, how, err);
}

int net_tls_check(struct bufferevent *bev)
{
    const struct net_crypto *k = net_crypto_loaded();
    return k != NULL ? k->tls_check(bev) : -EACCES;
}

void net_tls_forget(struct bufferevent *bev)
{
    const struct net_crypto *k = net_crypto_loaded();
    if (k != NULL)
        k->tls_forget(bev);
}

enum net_tls_fault net_tls_fault(struct bufferevent *bev, char *out, size_t size)
{
    const int saved = EVUTIL_SOCKET_ERROR();
    const struct net_crypto *k = net_crypto_loaded();
    out[0] = '\0';
    enum net_tls_fault fault = k != NULL ? k->tls_fault(bev, out, size) : NET_TLS_LOST;
    if (out[0] != '\0')
        return fault;
    (void)snprintf(out, size, "the connection was lost%s%s", saved != 0 ? ": " : "",
                   saved != 0 ? strerror(saved) : "");
    return saved == ENOMEM ? NET_TLS_MEMORY : NET_TLS_LOST;
}
