/* Part of the programs that contain openssl.c instead of loading it. */
#include "net/crypto_inner.h"

const struct net_crypto *const net_crypto_linked = &ddrun_openssl;
