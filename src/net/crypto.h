/* The start and the failures of OpenSSL, as far as memory is concerned. */
#ifndef DD_NET_CRYPTO_H
#define DD_NET_CRYPTO_H

#include "base/err.h"

/* Start OpenSSL; call it before any other function of OpenSSL that may be the first. OpenSSL 3.0
 * crashes in its first fetch of an algorithm if it had no memory to start. -ENOMEM: it cannot be
 * started in this process any more. */
int net_crypto_start(struct dd_err *err);
/* Describe the failure of a call of OpenSSL and clear OpenSSL's errors. what: an infinitive.
 * -ENOMEM if memory was lacking, else -EIO. */
int net_crypto_failed(struct dd_err *err, const char *what);

#endif
