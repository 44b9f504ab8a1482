/* Key source: a MUNGE credential that contains the key. */
#include "config.h"

#include "net/key_inner.h"

#include <errno.h>
#include <string.h>

#if HAVE_MUNGE

#include "base/auto.h"
#include "base/buf.h"
#include "base/library.h"

#include <munge.h>
#include <stdio.h>
#include <stdlib.h>

#define MUNGE_LIBRARY "libmunge.so.2"
#define MUNGE_FUNCTIONS(X)                                                                         \
    X(munge_ctx_create)                                                                            \
    X(munge_ctx_destroy)                                                                           \
    X(munge_ctx_set) X(munge_ctx_strerror) X(munge_decode) X(munge_encode) X(munge_strerror)

/* A context, and the functions for it. */
struct munge {
    MUNGE_FUNCTIONS(DD_LIBRARY_FIELD)
    munge_ctx_t ctx;
};

/* The credential's payload: "ddrun-key-1" NUL job_id NUL key. The job id makes a credential useless
 * for another job of the same user. */
static const char label[] = "ddrun-key-1";

enum { PAYLOAD_MAX = sizeof(label) + 256 + NET_KEY_LEN };

static int key_munge_load(struct munge *m, struct dd_err *err)
{
#define ROW(function) DD_LIBRARY_ROW(struct munge, function),
    static const struct dd_library_row rows[] = {MUNGE_FUNCTIONS(ROW)};
    return dd_library_load(m, MUNGE_LIBRARY, rows, sizeof(rows) / sizeof(rows[0]), err);
}

static int open_munge(struct munge *m, const struct net_key_input *in, struct dd_err *err)
{
    int rc = key_munge_load(m, err);
    if (rc < 0)
        return rc;
    m->ctx = m->munge_ctx_create();
    if (m->ctx == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for MUNGE");
    if (in->munge_socket == NULL ||
        m->munge_ctx_set(m->ctx, MUNGE_OPT_SOCKET, in->munge_socket) == EMUNGE_SUCCESS)
        return 0;
    rc = dd_err_set(err, -EINVAL, "cannot set the MUNGE socket '%s': %s", in->munge_socket,
                    m->munge_ctx_strerror(m->ctx));
    m->munge_ctx_destroy(m->ctx);
    return rc;
}

static int key_munge_fail(const struct munge *m, munge_err_t e, const char *what,
                          struct dd_err *err)
{
    const char *detail = m->munge_ctx_strerror(m->ctx);
    bool clock = e == EMUNGE_CRED_EXPIRED || e == EMUNGE_CRED_REWOUND;
    int rc = e == EMUNGE_CRED_UNAUTHORIZED ? -EACCES : e == EMUNGE_SOCKET ? -ENOENT : -EIO;
    return dd_err_set(err, rc, "MUNGE cannot %s: %s%s", what,
                      detail != NULL ? detail : m->munge_strerror(e),
                      clock ? "; the clocks of the nodes may differ" : "");
}

/* True if uids in this process equal those of the machine (no user namespace). Src:
 * user_namespaces(7). */
static bool uids_are_the_machines(void)
{
    char line[64] = "";
    unsigned inside = 1, outside = 1, count = 0;
    DD_AUTO(file) FILE *f = fopen("/proc/self/uid_map", "re");
    if (f == NULL || fgets(line, sizeof(line), f) == NULL)
        return true;
    return sscanf(line, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 &&
           outside == 0 && count == UINT32_MAX;
}

/* Return this user's uid as munged sees it. Inside nested containers the local uid may differ, so
 * ask munged. */
static int own_uid(const struct munge *m, uid_t *ret, struct dd_err *err)
{
    char *cred = NULL;
    gid_t gid;
    *ret = geteuid();
    if (uids_are_the_machines())
        return 0;
    munge_err_t e = m->munge_encode(&cred, m->ctx, NULL, 0);
    if (e == EMUNGE_SUCCESS)
        e = m->munge_decode(cred, m->ctx, NULL, NULL, ret, &gid);
    free(cred);
    return e == EMUNGE_SUCCESS ? 0 : key_munge_fail(m, e, "report this user's uid", err);
}

static int encode(char **ret, const struct net_key *key, const struct net_key_input *in,
                  struct dd_err *err)
{
    unsigned char payload[PAYLOAD_MAX];
    size_t job = strlen(in->job_id) + 1;
    struct munge m;
    char *cred = NULL;
    if (job > 256)
        return dd_err_set(err, -EINVAL,
                          "the job id (%zu bytes, limit 255) is too long for a MUNGE credential",
                          job - 1);
    int rc = open_munge(&m, in, err);
    if (rc < 0)
        return rc;
    memcpy(payload, label, sizeof(label));
    memcpy(payload + sizeof(label), in->job_id, job);
    memcpy(payload + sizeof(label) + job, key->bytes, NET_KEY_LEN);
    uid_t uid;
    rc = own_uid(&m, &uid, err);
    if (rc < 0) {
        explicit_bzero(payload, sizeof(payload));
        m.munge_ctx_destroy(m.ctx);
        return rc;
    }
    munge_err_t e = m.munge_ctx_set(m.ctx, MUNGE_OPT_UID_RESTRICTION, uid);
    if (e == EMUNGE_SUCCESS)
        e = m.munge_encode(&cred, m.ctx, payload, (int)(sizeof(label) + job + NET_KEY_LEN));
    explicit_bzero(payload, sizeof(payload));
    if (e == EMUNGE_SUCCESS)
        *ret = cred;
    else
        rc = key_munge_fail(&m, e, "make a credential", err);
    m.munge_ctx_destroy(m.ctx);
    return rc;
}

static int take_payload(struct net_key *ret, const struct net_key_input *in, const void *p, int n,
                        struct dd_err *err)
{
    size_t job = strlen(in->job_id) + 1;
    const unsigned char *bytes = p;
    if (n < 0 || (size_t)n != sizeof(label) + job + NET_KEY_LEN ||
        memcmp(bytes, label, sizeof(label)) != 0 ||
        memcmp(bytes + sizeof(label), in->job_id, job) != 0)
        return dd_err_set(err, -EACCES, "the leader's MUNGE credential was not made for this job");
    *ret = (struct net_key){.method = NET_KEY_MUNGE, .source = "MUNGE"};
    memcpy(ret->bytes, bytes + sizeof(label) + job, NET_KEY_LEN);
    return 0;
}

static int accept_cred(struct net_key *ret, const struct net_key_input *in, const char *cred,
                       struct dd_err *err)
{
    void *payload = NULL;
    int n = 0;
    uid_t uid = (uid_t)-1, own;
    gid_t gid;
    struct munge m;
    if (cred == NULL || cred[0] == '\0')
        return dd_err_set(err, -EINVAL, "the leader sent no MUNGE credential");
    int rc = open_munge(&m, in, err);
    if (rc < 0)
        return rc;
    if ((rc = own_uid(&m, &own, err)) < 0) {
        m.munge_ctx_destroy(m.ctx);
        return rc;
    }
    munge_err_t e = m.munge_decode(cred, m.ctx, &payload, &n, &uid, &gid);
    /* The leader sends one credential to several agents, some on the same machine, so a replay is
     * legitimate. An attacker who replays a credential cannot decode the key in it and fails the
     * handshake. Src: munge(3), which fields are valid on error. */
    if (e != EMUNGE_SUCCESS && e != EMUNGE_CRED_REPLAYED)
        rc = key_munge_fail(&m, e, "decode the leader's credential", err);
    else if (uid != own)
        rc = dd_err_set(err, -EACCES,
                        "the leader's MUNGE credential is from uid %u, not yours (uid %u)",
                        (unsigned)uid, (unsigned)own);
    else
        rc = take_payload(ret, in, payload, n, err);
    if (payload != NULL && n > 0)
        explicit_bzero(payload, (size_t)n);
    free(payload);
    m.munge_ctx_destroy(m.ctx);
    return rc;
}

/* Test whether munged responds by requesting a credential. */
static int key_munge_offer(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    struct net_key key = {.method = NET_KEY_MUNGE, .source = "MUNGE"};
    DD_AUTO(free) char *cred = NULL;
    int rc = net_key_random(key.bytes);
    if (rc < 0)
        return dd_err_set(err, rc, "getrandom failed: %s", strerror(-rc));
    rc = encode(&cred, &key, in, err);
    if (rc == 0)
        *ret = key;
    explicit_bzero(&key, sizeof(key));
    return rc;
}

static int key_munge_prepare(struct dd_err *err)
{
    struct munge m;
    return key_munge_load(&m, err);
}

const struct key_ops key_ops_munge = {.name = "MUNGE",
                                      .offer = key_munge_offer,
                                      .accept = accept_cred,
                                      .prepare = key_munge_prepare,
                                      .credential = encode};

#else

static int not_built(struct dd_err *err)
{
    return dd_err_set(err, -ENOTSUP, "ddrun was built without MUNGE");
}

static int key_munge_offer(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    (void)ret;
    (void)in;
    return not_built(err);
}

static int accept_cred(struct net_key *ret, const struct net_key_input *in, const char *cred,
                       struct dd_err *err)
{
    (void)ret;
    (void)in;
    (void)cred;
    return not_built(err);
}

const struct key_ops key_ops_munge = {
    .name = "MUNGE", .offer = key_munge_offer, .accept = accept_cred};

#endif
