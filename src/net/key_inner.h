/* Shared by the files that implement the key sources. */
#ifndef DD_NET_KEY_INNER_H
#define DD_NET_KEY_INNER_H

#include "base/owner.h"
#include "net/key.h"

#include <time.h>

enum { KEY_HEX = NET_KEY_LEN * 2, KEY_FILE_MAX = 65536 };
/* Key files in the home directory are named JOB.TAG.key; TAG is KEY_TAG hexadecimal digits. */
enum { KEY_TAG = 16, KEY_HOME_MAX = KEY_HEX + 1 + DD_OWNER_MAX };

/* A method to pass the key from the leader to the other agents. */
struct key_ops {
    const char *name;
    /* Make a key available to the other agents, on the leader. After any error the leader tries the
     * next method. NULL: the leader does not try this method. */
    int (*offer)(struct net_key *ret, const struct net_key_input *in, struct dd_err *err);
    /* Get the leader's key, on another agent. NULL: not used. */
    int (*accept)(struct net_key *ret, const struct net_key_input *in, const char *cred,
                  struct dd_err *err);
    /* Load what credential() and accept() need; NULL: nothing. */
    int (*prepare)(struct dd_err *err);
    int (*credential)(char **ret, const struct net_key *key, const struct net_key_input *in,
                      struct dd_err *err);
    void (*cleanup)(const struct net_key *key, const struct net_key_input *in);
};

extern const struct key_ops key_ops_munge;
extern const struct key_ops key_ops_home;

/* A regular file owned by this uid and accessible to no other user, opened relative to dirfd. */
struct key_path {
    int dirfd;
    const char *name;
    const char *what;  /* kind of the file, for messages: "key file" */
    const char *shown; /* path of the file, for messages */
    int flags;         /* O_NOFOLLOW or 0 */
};
int key_file_read(const struct key_path *path, unsigned char *out, size_t size, struct dd_err *err);

bool key_is_tag(const char *text); /* true if it begins with a tag */
/* Remove stale files of ~/.ddrun (keys, charges, temporary files), a few per call. now: from the
 * file system's clock. */
void key_sweep(int dirfd, time_t now);

/* Estimate the entropy of the secret in bits, assuming that a person or a weak generator made it:
 * an upper bound. Pure. */
enum { KEY_STRENGTH_MIN = 96 };
unsigned key_strength(const unsigned char *secret, size_t n);

int key_from_hex(unsigned char out[NET_KEY_LEN], const char *hex); /* exactly KEY_HEX digits */
void key_to_hex(char out[KEY_HEX + 1], const unsigned char key[NET_KEY_LEN]);

#endif
