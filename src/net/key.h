/* The job's secret and its sources. */
#ifndef DD_NET_KEY_H
#define DD_NET_KEY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NET_KEY_LEN = 32 };

/* How the leader passes its key to the other agents, announced in the hello; in order of
 * preference. */
enum net_key_method {
    NET_KEY_NONE,   /* --insecure: no TLS, no authentication */
    NET_KEY_SHARED, /* both sides have the secret: key file, DDRUN_KEY, a secret of this job */
    NET_KEY_MUNGE,  /* the leader sends the key in a credential that only this uid can decode */
    NET_KEY_HOME,   /* the leader names a 0600 file in a shared home directory */
    NET_KEY_METHOD_MAX,
};

struct net_key {
    enum net_key_method method;
    unsigned char bytes[NET_KEY_LEN];
    bool guessable;   /* from PBS_JOBCOOKIE: derive nothing from it that other users can observe */
    char source[300]; /* for messages: "key file '/home/u/k'", "PBS_JOBCOOKIE", "MUNGE" */
};

struct net_key_input {
    char *const *env;     /* DDRUN_KEY (64 hex digits), DDRUN_KEY_FILE, HOME */
    const char *key_file; /* --key-file, overrides the environment; NULL: none */
    const char *psk;      /* secret of this job (struct alloc) with at least 128 bits; NULL: none */
    const char *psk_source; /* origin of psk for messages; NULL: the launcher */
    const char *cookie;     /* PBS_JOBCOOKIE; NULL: none; a key only if use_cookie is set, because
                               other users can compute it */
    bool use_cookie;        /* --key-source=pbs-cookie */
    const char *run; /* distinguishes runs with the same job id, not secret; NULL: no distinction */
    const char *munge_socket; /* --munge-socket; NULL: munge's default */
    const char *job_id;
    bool insecure;
};

/* Choose the leader's key. The first source that works wins, in the order file or environment, psk,
 * MUNGE (a random key; munged must respond), shared home directory (a random key; writes a file);
 * else -ENOKEY with a message that lists the options. The cookie is used only on request: other
 * users can compute it, and could make the better sources fail (by filling the file system, for
 * example). -EINVAL with file name and remedy: a key file is readable by others, easy to guess, or
 * owned by another user. Shared secrets are hashed to NET_KEY_LEN bytes (SHA-256, with a label). */
int net_key_for_leader(struct net_key *ret, const struct net_key_input *in, struct dd_err *err);

#define NET_KEY_COOKIE_WARNING                                                                     \
    "--key-source=pbs-cookie: other users with jobs on this machine can compute "                  \
    "PBS_JOBCOOKIE, join the job and read its environment"

/* Choose the key of an agent before it contacts the leader: NET_KEY_SHARED if the agent has a
 * shared secret, else NET_KEY_NONE without a key. -EINVAL as for
 * net_key_for_leader(). */
int net_key_for_agent(struct net_key *ret, const struct net_key_input *in, struct dd_err *err);

/* Check whether an agent may take its key from the source that the leader announced, without asking
 * that source. -EPERM: the agent has a shared key or runs with --insecure, and the source is MUNGE
 * or the home directory: a listener of another user at a candidate port may announce MUNGE, to
 * make the agent wait for munged. A leader with the same shared key announces NET_KEY_SHARED. */
int net_key_may_accept(const struct net_key_input *in, enum net_key_method method,
                       struct dd_err *err);

/* Get an agent's key by that method, if net_key_may_accept(). cred: the leader's credential
 * (NUL-terminated); NULL: none. -EACCES: the credential is from another uid; -ENOENT: the file does
 * not exist (yet); -ENOTSUP: built without MUNGE; -ELIBACC: libmunge cannot be loaded; each with a
 * message. NET_KEY_NONE is refused unless in->insecure. */
int net_key_accept(struct net_key *ret, const struct net_key_input *in, enum net_key_method method,
                   const char *cred, struct dd_err *err);

/* Load the library that net_key_credential() and net_key_accept() need: a confined process cannot
 * load one. */
int net_key_prepare(enum net_key_method method, struct dd_err *err);

/* True if net_key_credential() and net_key_accept() wait for another process. */
bool net_key_waits(enum net_key_method method);

/* Make the credential that the leader sends to other agents. NET_KEY_MUNGE: a new credential,
 * restricted to this uid, which may be decoded more than once; NET_KEY_HOME: the name of the file.
 * The caller frees *ret. */
int net_key_credential(char **ret, const struct net_key *key, const struct net_key_input *in,
                       struct dd_err *err);

/* Remove the file that net_key_for_leader() created in the home directory. */
void net_key_cleanup(const struct net_key *key, const struct net_key_input *in);

int net_key_random(unsigned char out[NET_KEY_LEN]);

/* Compute the pre-shared key of the TLS session: the key itself or, if in->run is set, an HMAC of
 * in->run under the key, so that processes left over from an earlier run with the same job id are
 * refused. */
int net_key_psk(unsigned char out[NET_KEY_LEN], const struct net_key *key,
                const struct net_key_input *in);

/* Return a number that only holders of the secret can compute, for candidate ports. It is derived
 * from the secret that this node has before it contacts another node, else from DDRUN_PORT_SEED,
 * which ddrun sets for the agents it starts. 0: neither exists. */
uint64_t net_key_seed(const struct net_key_input *in);

#endif
