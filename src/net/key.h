/* The job's secret and where it comes from. */
#ifndef DD_NET_KEY_H
#define DD_NET_KEY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_KEY_LEN = 32 };

/* How a host hands its key to the guests; announced in the hello, in order of preference. */
enum net_key_method {
    NET_KEY_NONE,   /* --insecure: no TLS, no proof */
    NET_KEY_SHARED, /* both sides have it: key file, DDRUN_KEY, a secret of this job */
    NET_KEY_MUNGE,  /* the host sends it inside a credential that only this uid can decode */
    NET_KEY_HOME,   /* a 0600 file in a shared home directory, which the host names */
    NET_KEY_METHOD_MAX,
};

struct net_key {
    enum net_key_method method;
    unsigned char bytes[NET_KEY_LEN];
    bool guessable;   /* PBS's cookie: nothing that others see may be derived from it */
    char source[300]; /* for a person: "key file '/home/u/k'", "PBS_JOBCOOKIE", "MUNGE" */
};

struct net_key_input {
    char *const *env;       /* DDRUN_KEY (64 hex digits), DDRUN_KEY_FILE, HOME */
    const char *key_file;   /* --key-file, wins over the environment; NULL */
    const char *psk;        /* secret of this job (struct alloc) with at least 128 bits, NULL */
    const char *psk_source; /* its origin, where not the launcher: for a person; NULL */
    const char
        *cookie; /* PBS_JOBCOOKIE, NULL; a key only with use_cookie: other users can compute it */
    bool use_cookie;          /* --key-source=pbs-cookie */
    const char *run;          /* what differs between two runs of one job id, not secret; NULL */
    const char *munge_socket; /* --munge-socket, NULL: munge's default */
    const char *job_id;
    bool insecure;
};

/* For the host: the first source that works, in the order file/environment, psk, MUNGE (a random
 * key, and munged answers), shared home (a random key, file written), else -ENOKEY with a sentence
 * that names the choices. The cookie is never taken unasked: other users can compute it, and could
 * make the better sources fail (a full file system, for example). A key file that others may read,
 * that is easy to guess, or not ours: -EINVAL, names the file and the remedy. Shared secrets are
 * hashed to NET_KEY_LEN bytes (SHA-256, with a label). */
int net_key_host(struct net_key *ret, const struct net_key_input *in, struct dd_err *err);

#define NET_KEY_COOKIE_WARNING                                                                     \
    "--key-source=pbs-cookie: other users with jobs on this machine can compute "                  \
    "PBS_JOBCOOKIE, join the job and read its environment"

/* For a guest: what it can know before it has met the host; NET_KEY_SHARED when it has one, else
 * method NET_KEY_NONE and no key yet. Key file errors as above. */
int net_key_guest(struct net_key *ret, const struct net_key_input *in, struct dd_err *err);

/* For a guest: the key for the method that the host announced, `cred` being its credential
 * (NUL-ended text) or NULL. -EACCES: the credential is not from this uid; -ENOENT: no such file
 * (yet); -ENOTSUP: built without MUNGE, and others, each with a sentence. NET_KEY_NONE is refused
 * unless in->insecure. */
int net_key_accept(struct net_key *ret, const struct net_key_input *in, enum net_key_method method,
                   const char *cred, struct dd_err *err);

/* Host: what a guest needs to come to the key. NET_KEY_MUNGE: a new credential, restricted to this
 * uid, which a guest takes more than once; NET_KEY_HOME: which file it is. Gives text (free()). */
int net_key_credential(char **ret, const struct net_key *key, const struct net_key_input *in,
                       struct dd_err *err);

/* Removes what net_key_host() left (the file in the home directory). */
void net_key_cleanup(const struct net_key *key, const struct net_key_input *in);

int net_key_random(unsigned char out[NET_KEY_LEN]);

/* The pre-shared key of the TLS session: the key itself, or, where in->run is set, an HMAC of that
 * under it, so that processes left over from an earlier run of the same job id are refused. */
int net_key_psk(unsigned char out[NET_KEY_LEN], const struct net_key *key,
                const struct net_key_input *in);

/* A number that only holders of the key can compute, for candidate ports: of the secret that this
 * node has before it meets another one, else DDRUN_PORT_SEED, which ddrun's own starter has set. 0:
 * none. */
uint64_t net_key_seed(const struct net_key_input *in);

#endif
