/* What the files of the key sources share. */
#ifndef DD_NET_KEY_INNER_H
#define DD_NET_KEY_INNER_H

#include "base/owner.h"
#include "net/key.h"

#include <time.h>

enum { KEY_HEX = NET_KEY_LEN * 2, KEY_FILE_MAX = 65536 };
/* Files in the home directory are called JOB.TAG.key, TAG being KEY_TAG hexadecimal digits. */
enum { KEY_TAG = 16, KEY_HOME_MAX = KEY_HEX + 1 + DD_OWNER_MAX };

/* One way from the host to the guests. */
struct key_ops {
    const char *name;
    /* Host: makes the key available; any error means that the next way is tried. NULL: not a way of
     * its own. */
    int (*offer)(struct net_key *ret, const struct net_key_input *in, struct dd_err *err);
    /* Guest. */
    int (*accept)(struct net_key *ret, const struct net_key_input *in, const char *cred,
                  struct dd_err *err);
    int (*credential)(char **ret, const struct net_key *key, const struct net_key_input *in,
                      struct dd_err *err);
    void (*cleanup)(const struct net_key *key, const struct net_key_input *in);
};

extern const struct key_ops key_ops_munge;
extern const struct key_ops key_ops_home;

/* A regular file of this uid that nobody else may read, "what" saying in errors what it is ("key
 * file"). Returns its length; -EINVAL otherwise. Opened below dirfd, without following a link when
 * nofollow. */
struct key_path {
    int dirfd;
    const char *name;
    const char *what;
    const char *shown; /* its path for a person */
    int flags;         /* O_NOFOLLOW or 0 */
};
int key_file_read(const struct key_path *path, unsigned char *out, size_t size, struct dd_err *err);

bool key_is_tag(const char *text); /* begins with one */
/* Removes key files of processes that are gone, a few at a time; now: as the file system's clock
 * says. */
void key_sweep(int dirfd, time_t now);

/* Bits that an attacker has to guess at most, as a person or a bad generator would have made the
 * secret: an upper bound of the real number. Pure. */
enum { KEY_STRENGTH_MIN = 96 };
unsigned key_strength(const unsigned char *secret, size_t n);

int key_from_hex(unsigned char out[NET_KEY_LEN], const char *hex); /* exactly KEY_HEX digits */
void key_to_hex(char out[KEY_HEX + 1], const unsigned char key[NET_KEY_LEN]);

#endif
