/* TLS 1.3 with an external pre-shared key only: no certificates, no tickets, a new Diffie-Hellman
 * exchange for each connection. Src: RFC 8446 4.2.11, RFC 9258; OpenSSL 3.0
 * SSL_CTX_set_psk_find_session_callback(3).
 *
 * OpenSSL is not loaded before the first net_tls_new(). */
#ifndef DD_NET_TLS_H
#define DD_NET_TLS_H

#include "base/err.h"
#include "net/key.h"

#include <stdbool.h>

struct bufferevent;
struct event_base;
struct net_tls;

/* Identity and key that both sides of a connection prove; must live until net_tls_forget(). */
struct net_tls_psk {
    const char *identity; /* the job id */
    unsigned char key[NET_KEY_LEN];
};

int net_tls_new(struct net_tls **ret, struct dd_err *err);
void net_tls_free(struct net_tls *t);

struct net_tls_open {
    bool is_server;
    struct net_tls_psk *psk;
};
/* Make a bufferevent that does the handshake on fd, which it takes on success. */
int net_tls_open(struct bufferevent **ret, const struct net_tls *t, struct event_base *base, int fd,
                 const struct net_tls_open *how, struct dd_err *err);
/* After BEV_EVENT_CONNECTED: 0 if both sides have proved the key, else -EACCES. */
int net_tls_check(struct bufferevent *bev);
/* Drop the reference to psk after the handshake. */
void net_tls_forget(struct bufferevent *bev);

enum net_tls_fault {
    NET_TLS_LOST,     /* the connection ended */
    NET_TLS_KEY,      /* the keys differ */
    NET_TLS_IDENTITY, /* the peer has no key with this identity */
    NET_TLS_MEMORY,   /* this process is out of memory */
    NET_TLS_OTHER,
};
/* Classify a BEV_EVENT_ERROR of this bufferevent; write its description, part of a message, to out.
 */
enum net_tls_fault net_tls_fault(struct bufferevent *bev, char *out, size_t size);

#endif
