/* etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/PREFIX[?cacert=FILE&cert=FILE&key=FILE&password-file=FILE]:
 * the etcd servers and the keys through which the nodes of a job find each other; etcds:// for TLS.
 * Pure. */
#ifndef DD_WEB_ETCD_URL_H
#define DD_WEB_ETCD_URL_H

#include "base/auto.h"
#include "base/err.h"
#include "base/strv.h"

#include <stdbool.h>

enum { ETCD_HOSTS_MAX = 9, ETCD_TEXT_MAX = 512 };

struct etcd_url {
    struct dd_strv bases;                  /* "http://HOST:PORT", in the order of the URL */
    char *prefix;                          /* "/ddrun": starts with '/', does not end with '/' */
    char *user, *password, *password_file; /* NULL: not set */
    char *cacert, *cert, *key;             /* files; NULL: not set */
};

bool etcd_url_is(const char *text); /* true if text has the prefix of an etcd URL; NULL: false */
/* Error messages contain no password. */
int etcd_url_parse(struct etcd_url *ret, const char *text, struct dd_err *err);
void etcd_url_done(struct etcd_url *u);

static inline void dd_auto_etcd_url(struct etcd_url *u)
{
    etcd_url_done(u);
}

#endif
