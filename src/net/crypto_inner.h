/* The operations that ddrun needs from OpenSSL, as a table of functions, which tls_inner.h and
 * crypto.h wrap.
 *
 * OpenSSL takes 2 ms to load, and a job of one node does not need it. So openssl.c is a module,
 * ddrun-openssl.so, that the first use loads; a program that needs OpenSSL in any case, or that is
 * linked statically, contains openssl.c and openssl_linked.c instead. */
#ifndef DD_NET_CRYPTO_INNER_H
#define DD_NET_CRYPTO_INNER_H

#include "net/crypto.h"
#include "net/tls_inner.h"

struct ssl_ctx_st; /* OpenSSL's SSL_CTX */

struct net_crypto {
    int (*sha256)(unsigned char ret[NET_SHA256], const struct net_piece *pieces, size_t n,
                  struct dd_err *err);
    int (*hmac_sha256)(unsigned char ret[NET_SHA256], struct net_piece key, struct net_piece text,
                       struct dd_err *err);
    int (*tls_new)(struct ssl_ctx_st **ret, struct dd_err *err);
    void (*tls_free)(struct ssl_ctx_st *ctx);
    int (*tls_open)(struct bufferevent **ret, struct ssl_ctx_st *ctx, struct event_base *base,
                    int fd, const struct net_tls_open *how, struct dd_err *err);
    int (*tls_check)(struct bufferevent *bev);
    void (*tls_forget)(struct bufferevent *bev);
    /* NET_TLS_LOST and an empty out: OpenSSL has reported no error */
    enum net_tls_fault (*tls_fault)(struct bufferevent *bev, char *out, size_t size);
};

/* Load OpenSSL, if it is not loaded yet, for the life of the process. NULL: it cannot be loaded. */
const struct net_crypto *net_crypto_load(struct dd_err *err);
/* Return the table if OpenSSL is loaded. NULL: it is not, so no connection of this process uses
 * TLS. */
const struct net_crypto *net_crypto_loaded(void);

/* Defined in openssl.c. */
extern const struct net_crypto ddrun_openssl;
/* Defined in openssl_linked.c, in programs that contain openssl.c; in others, its address is NULL.
 */
extern const struct net_crypto *const net_crypto_linked __attribute__((weak));

#endif
