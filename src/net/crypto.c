#include "net/crypto.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdbool.h>

int net_crypto_start(struct dd_err *err)
{
#if OPENSSL_VERSION_NUMBER >= 0x30000000L
    if (OSSL_LIB_CTX_get0_global_default() == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory to start OpenSSL");
#endif
    (void)err;
    return 0;
}

int net_crypto_failed(struct dd_err *err, const char *what)
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
        return dd_err_set(err, -ENOMEM, "out of memory to %s", what);
    if (first != 0)
        ERR_error_string_n(first, text, sizeof(text));
    return dd_err_set(err, -EIO, "OpenSSL cannot %s: %s", what, text);
}
