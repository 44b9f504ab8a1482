/* etcd's version 3 API through its JSON gateway: encode requests, decode replies. Pure. The decoder
 * accepts untrusted input. */
#ifndef DD_WEB_ETCD_H
#define DD_WEB_ETCD_H

#include "base/auto.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum etcd_call { ETCD_AUTH, ETCD_READ, ETCD_GRANT, ETCD_KEEP, ETCD_REVOKE, ETCD_PUT, ETCD_CALLS };

enum { ETCD_VALUE_MAX = 8192, ETCD_TOKEN_MAX = 4096, ETCD_PASSWORD_MAX = 4096 };

struct etcd_ask {
    enum etcd_call call;
    const char *user, *password; /* AUTH */
    const char *key;             /* READ, PUT */
    const char *value;           /* PUT */
    int64_t lease;               /* KEEP, REVOKE, PUT */
    int64_t revision; /* PUT: write only if the key was last changed in this revision; 0: only if
                         the key does not exist */
    int ttl;          /* GRANT, seconds */
};

const char *etcd_path(enum etcd_call call); /* path of the call's URL */
/* Encode the body; the caller frees *ret. -ENOMEM. */
int etcd_ask_encode(char **ret, const struct etcd_ask *ask);

enum etcd_result {
    ETCD_DONE,
    ETCD_LOST,     /* PUT: the key was changed meanwhile */
    ETCD_NO_LEASE, /* KEEP, PUT, REVOKE: the lease has expired */
    ETCD_NO_TOKEN, /* the token is invalid: authenticate again */
    ETCD_NO_AUTH,  /* AUTH: authentication is disabled in etcd */
    ETCD_REFUSED,  /* wrong user or password, or no permission */
    ETCD_FAILED,   /* any other error; a retry may succeed */
};

struct etcd_answer {
    bool there;       /* READ: the key exists; PUT: the key was written */
    int64_t revision; /* revision of the key's last change */
    int64_t lease;    /* READ: lease of the key; GRANT: the new lease */
    char *value;      /* READ: NUL-terminated; may contain any other byte */
    char *token;      /* AUTH */
};

/* Decode a reply; err is set unless the result is ETCD_DONE. etcd_answer_done() frees *ret. */
enum etcd_result etcd_answer_decode(struct etcd_answer *ret, enum etcd_call call, int status,
                                    const char *body, struct dd_err *err);
void etcd_answer_done(struct etcd_answer *a);

static inline void dd_auto_etcd_answer(struct etcd_answer *a)
{
    etcd_answer_done(a);
}

#endif
