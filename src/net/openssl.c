/* The functions of crypto_inner.h, implemented with OpenSSL. */
#include "net/crypto_inner.h"

#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Start OpenSSL; call it before any other function of OpenSSL that may be the first. OpenSSL 3.0
 * crashes in its first fetch of an algorithm if it had no memory to start. -ENOMEM: it cannot be
 * started in this process any more. */
static int openssl_start(struct dd_err *err)
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
    if (OSSL_LIB_CTX_get0_global_default() == NULL)
        return dd_err_set(err, -ENOMEM, "OpenSSL cannot start: out of memory");
#endif
    (void)err;
    return 0;
}

/* Describe the failure of a call of OpenSSL and clear OpenSSL's errors. what: an infinitive.
 * -ENOMEM if memory was lacking, else -EIO. */
static int openssl_failed(struct dd_err *err, const char *what)
{
    char text[160] = "no reason given";
    bool memory = false;
    unsigned long e;
    unsigned long first = 0;
    while ((e = ERR_get_error()) != 0) {
        first = first == 0 ? e : first;
        memory = memory || ERR_GET_REASON(e) == ERR_R_MALLOC_FAILURE;
    }
    if (memory)
        return dd_err_set(err, -ENOMEM, "OpenSSL cannot %s: out of memory", what);
    if (first != 0)
        ERR_error_string_n(first, text, sizeof(text));
    return dd_err_set(err, -EIO, "OpenSSL cannot %s: %s", what, text);
}

static int openssl_sha256(unsigned char ret[NET_SHA256], const struct net_piece *pieces, size_t n,
                          struct dd_err *err)
{
    int rc = openssl_start(err);
    if (rc < 0)
        return rc;
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = c != NULL && EVP_DigestInit_ex(c, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; ok && i < n; i++)
        ok = EVP_DigestUpdate(c, pieces[i].data, pieces[i].len) == 1;
    ok = ok && EVP_DigestFinal_ex(c, ret, NULL) == 1;
    EVP_MD_CTX_free(c);
    return ok ? 0 : openssl_failed(err, "hash with SHA-256");
}

static int openssl_hmac_sha256(unsigned char ret[NET_SHA256], struct net_piece key,
                               struct net_piece text, struct dd_err *err)
{
    unsigned len = 0;
    int rc = openssl_start(err);
    if (rc < 0)
        return rc;
    return HMAC(EVP_sha256(), key.data, (int)key.len, text.data, text.len, ret, &len) != NULL
               ? 0
               : openssl_failed(err, "compute HMAC with SHA-256");
}

/* The PSK is bound to the hash of its cipher suite, SHA-256, so only one suite is offered. */
static const char suites[] = "TLS_AES_128_GCM_SHA256";
static const unsigned char suite_id[] = {0x13, 0x01};

static SSL_SESSION *session_of(SSL *ssl, const struct net_tls_psk *psk)
{
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *s = SSL_SESSION_new();
    if (cipher == NULL || s == NULL || SSL_SESSION_set_cipher(s, cipher) != 1 ||
        SSL_SESSION_set1_master_key(s, psk->key, sizeof(psk->key)) != 1 ||
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(s);
        return NULL;
    }
    return s;
}

/* An unknown identity has no session; without certificates the handshake then fails. */
static int find_session(SSL *ssl, const unsigned char *identity, size_t len, SSL_SESSION **ret)
{
    const struct net_tls_psk *psk = SSL_get_app_data(ssl);
    *ret = NULL;
    if (psk == NULL || len != strlen(psk->identity) || memcmp(identity, psk->identity, len) != 0)
        return 1;
    *ret = session_of(ssl, psk);
    return *ret != NULL;
}

/* md is set if the server has already chosen a hash (after HelloRetryRequest). */
static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **identity, size_t *len,
                       SSL_SESSION **ret)
{
    const struct net_tls_psk *psk = SSL_get_app_data(ssl);
    *ret = NULL;
    if (psk == NULL || (md != NULL && EVP_MD_type(md) != NID_sha256))
        return 0;
    *identity = (const unsigned char *)psk->identity;
    *len = strlen(psk->identity);
    *ret = session_of(ssl, psk);
    return *ret != NULL;
}

static int openssl_tls_new(SSL_CTX **ret, struct dd_err *err)
{
    int rc = openssl_start(err);
    if (rc < 0)
        return rc;
    ERR_clear_error();
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    /* The key exchange modes stay at OpenSSL's default, psk_dhe_ke alone. */
    if (ctx == NULL || SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(ctx, suites) != 1 || SSL_CTX_set_num_tickets(ctx, 0) != 1) {
        SSL_CTX_free(ctx);
        return openssl_failed(err, "set up TLS 1.3");
    }
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    /* saves 34 KiB per idle link, with thousands of links */
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_psk_find_session_callback(ctx, find_session);
    SSL_CTX_set_psk_use_session_callback(ctx, use_session);
    *ret = ctx;
    return 0;
}

static int openssl_tls_open(struct bufferevent **ret, SSL_CTX *ctx, struct event_base *base, int fd,
                            const struct net_tls_open *how, struct dd_err *err)
{
    SSL *ssl = SSL_new(ctx);
    if (ssl == NULL)
        return openssl_failed(err, "start a connection");
    SSL_set_app_data(ssl, how->psk);
    /* no CA is trusted, so a server that answers with a certificate instead of the key fails */
    SSL_set_verify(ssl, how->is_server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    struct bufferevent *bev = bufferevent_openssl_socket_new(
        base, fd, ssl, how->is_server ? BUFFEREVENT_SSL_ACCEPTING : BUFFEREVENT_SSL_CONNECTING,
        BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (bev == NULL) { /* libevent 2.1.12 does not free ssl on failure */
        SSL_free(ssl);
        return dd_err_set(err, -ENOMEM, "out of memory for a TLS connection");
    }
    *ret = bev;
    return 0;
}

static int openssl_tls_check(struct bufferevent *bev)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    bool by_key = SSL_session_reused(ssl) == 1 && SSL_version(ssl) == TLS1_3_VERSION;
    return by_key ? 0 : -EACCES;
}

static void openssl_tls_forget(struct bufferevent *bev)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    if (ssl != NULL)
        SSL_set_app_data(ssl, NULL);
}

/* Meaning of OpenSSL's error codes. Each side reports its own error or the peer's alert. Measured
 * with OpenSSL 3.0: a server whose key differs detects a bad binder and its client gets "illegal
 * parameter"; a server that does not know the identity falls back to certificates, of which it has
 * none. */
static const struct {
    int reason;
    enum net_tls_fault fault;
    const char *text;
} faults[] = {
    {SSL_R_BINDER_DOES_NOT_VERIFY, NET_TLS_KEY, "its key is not that of this job"},
    {SSL_R_DIGEST_CHECK_FAILED, NET_TLS_KEY, "its key is not that of this job"},
    {SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER, NET_TLS_KEY, "its key differs from this node's"},
    {SSL_R_TLSV1_ALERT_DECRYPT_ERROR, NET_TLS_KEY, "its key differs from this node's"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, NET_TLS_IDENTITY, "it has no key of this job"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, NET_TLS_IDENTITY, "it has no key of this job"},
    {SSL_R_CERTIFICATE_VERIFY_FAILED, NET_TLS_IDENTITY, "it sent a certificate instead of the key"},
#ifdef SSL_R_UNEXPECTED_EOF_WHILE_READING /* OpenSSL 3.0 and later */
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, NET_TLS_LOST, "the connection was lost"},
#endif
};

static enum net_tls_fault openssl_tls_fault(struct bufferevent *bev, char *out, size_t size)
{
    unsigned long e = bufferevent_get_openssl_error(bev);
    /* without an OpenSSL error, libevent stores the result of SSL_get_error(). Src: libevent 2.1,
     * bufferevent_openssl.c */
    if (e == 0 || e == SSL_ERROR_SYSCALL) {
        out[0] = '\0';
        return NET_TLS_LOST;
    }
    int reason = ERR_GET_REASON(e);
    if (reason == ERR_R_MALLOC_FAILURE) {
        (void)snprintf(out, size, "out of memory for TLS");
        return NET_TLS_MEMORY;
    }
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        if (faults[i].reason == reason && ERR_GET_LIB(e) == ERR_LIB_SSL) {
            (void)snprintf(out, size, "%s", faults[i].text);
            return faults[i].fault;
        }
    const char *text = ERR_reason_error_string(e);
    (void)snprintf(out, size, "TLS: %s", text != NULL ? text : "unknown error");
    return NET_TLS_OTHER;
}

const struct net_crypto ddrun_openssl = {
    .sha256 = openssl_sha256,
    .hmac_sha256 = openssl_hmac_sha256,
    .tls_new = openssl_tls_new,
    .tls_free = SSL_CTX_free,
    .tls_open = openssl_tls_open,
    .tls_check = openssl_tls_check,
    .tls_forget = openssl_tls_forget,
    .tls_fault = openssl_tls_fault,
};
