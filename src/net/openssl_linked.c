/* For programs that contain OpenSSL instead of loading it. */
#include "net/crypto_inner.h"

const struct net_crypto *const net_crypto_linked = &ddrun_openssl;
