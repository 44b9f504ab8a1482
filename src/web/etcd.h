/* etcd's version 3 by its JSON gateway: what is asked, and what is answered. Pure; an answer may be
 * anything. */
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
    int64_t revision; /* PUT: only where the key was last changed in this one; 0: only where there
                         is none */
    int ttl;          /* GRANT, seconds */
};

const char *etcd_path(enum etcd_call call); /* of its URL */
/* The body; gives text (free()). -ENOMEM. */
int etcd_ask_encode(char **ret, const struct etcd_ask *ask);

enum etcd_result {
    ETCD_DONE,
    ETCD_LOST,     /* PUT: the key has changed meanwhile */
    ETCD_NO_LEASE, /* KEEP, PUT, REVOKE: it is over */
    ETCD_NO_TOKEN, /* authenticate once more */
    ETCD_NO_AUTH,  /* AUTH: etcd asks nobody who he is */
    ETCD_REFUSED,  /* wrong user, wrong password, no permission */
    ETCD_FAILED,   /* anything else; another try may do better */
};

struct etcd_answer {
    bool there;       /* READ: there is such a key */
    int64_t revision; /* in which it was last changed */
    int64_t lease;    /* READ: it hangs on; GRANT: the new one */
    char *value;      /* READ: NUL-ended, may have any other bytes */
    char *token;      /* AUTH */
};

/* With a sentence for what is not ETCD_DONE. Gives the content of *ret. */
enum etcd_result etcd_answer_decode(struct etcd_answer *ret, enum etcd_call call, int status,
                                    const char *body, struct dd_err *err);
void etcd_answer_done(struct etcd_answer *a);

static inline void dd_auto_etcd_answer(struct etcd_answer *a)
{
    etcd_answer_done(a);
}

#endif
