/* Digests, computed by OpenSSL, which is loaded on the first use. */
#ifndef DD_NET_CRYPTO_H
#define DD_NET_CRYPTO_H

#include "base/err.h"

#include <stddef.h>

enum { NET_SHA256 = 32 /* bytes */ };

struct net_piece {
    const void *data;
    size_t len;
};

/* Load OpenSSL now, so that processes that are forked later share it. A failure is reported by the
 * first use of OpenSSL, which tries again. */
void net_crypto_preload(void);

/* Compute SHA-256 of n concatenated pieces. 0; -ELIBACC: OpenSSL cannot be loaded; -ENOMEM; -EIO:
 * another failure of OpenSSL. */
int net_sha256(unsigned char ret[NET_SHA256], const struct net_piece *pieces, size_t n,
               struct dd_err *err);
/* Compute HMAC with SHA-256. Errors as for net_sha256(). Src: RFC 2104. */
int net_hmac_sha256(unsigned char ret[NET_SHA256], struct net_piece key, struct net_piece text,
                    struct dd_err *err);

#endif
