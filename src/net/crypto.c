#include "net/crypto_inner.h"

#include "base/installed.h"

#include <dlfcn.h>
#include <errno.h>

#define MODULE "ddrun-openssl.so"

/* Find a loaded module by its symbol, which is global, and load none: a confined ddrund may not
 * map code. */
const struct net_crypto *net_crypto_loaded(void)
{
    return &net_crypto_linked != NULL ? net_crypto_linked : dlsym(RTLD_DEFAULT, "ddrun_openssl");
}

const struct net_crypto *net_crypto_load(struct dd_err *err)
{
    const struct net_crypto *k = net_crypto_loaded();
    char path[PATH_MAX];
    if (k != NULL)
        return k;
    if (!dd_installed_find(path, MODULE, PKGLIBEXECDIR)) {
        (void)dd_err_set(err, -ELIBACC,
                         "cannot load OpenSSL: this installation of ddrun has no file '%s'"
                         "\n  tip: keep the directories bin and libexec of ddrun together",
                         path);
        return NULL;
    }
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    k = module != NULL ? dlsym(module, "ddrun_openssl") : NULL;
    if (k == NULL) {
        const char *why = dlerror();
        (void)dd_err_set(err, -ELIBACC, "cannot load OpenSSL: %s", why != NULL ? why : path);
    }
    return k;
}

void net_crypto_preload(void)
{
    (void)net_crypto_load(NULL);
}

int net_sha256(unsigned char ret[NET_SHA256], const struct net_piece *pieces, size_t n,
               struct dd_err *err)
{
    const struct net_crypto *k = net_crypto_load(err);
    return k == NULL ? -ELIBACC : k->sha256(ret, pieces, n, err);
}

int net_hmac_sha256(unsigned char ret[NET_SHA256], struct net_piece key, struct net_piece text,
                    struct dd_err *err)
{
    const struct net_crypto *k = net_crypto_load(err);
    return k == NULL ? -ELIBACC : k->hmac_sha256(ret, key, text, err);
}
