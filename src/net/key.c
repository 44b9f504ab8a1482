#include "net/key.h"

#include "base/buf.h"
#include "base/strv.h"
#include "net/crypto.h"
#include "net/key_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct key_ops ops_none = {.name = "no key (--insecure)"};
static const struct key_ops ops_shared = {.name = "a key that both sides have"};

static const struct key_ops *const methods[] = {
    [NET_KEY_NONE] = &ops_none,
    [NET_KEY_SHARED] = &ops_shared,
    [NET_KEY_MUNGE] = &key_ops_munge,
    [NET_KEY_HOME] = &key_ops_home,
};
_Static_assert(sizeof(methods) / sizeof(methods[0]) == NET_KEY_METHOD_MAX, "a row per method");

/* Set the key to SHA-256 of "ddrun-secret-1" NUL secret. */
static int from_secret(struct net_key *ret, const void *secret, size_t n, struct dd_err *err)
{
    static const char label[] = "ddrun-secret-1";
    const struct net_piece pieces[] = {{label, sizeof(label)}, {secret, n}};
    int rc = net_sha256(ret->bytes, pieces, 2, err);
    if (rc == 0)
        ret->method = NET_KEY_SHARED;
    return rc;
}

/* name and shown are for the message; shown: quoted after the name, NULL: not printed. */
static int check_strength(const unsigned char *secret, size_t n, const char *name,
                          const char *shown, struct dd_err *err)
{
    const unsigned bits = key_strength(secret, n);
    return bits >= KEY_STRENGTH_MIN
               ? 0
               : dd_err_set(
                     err, -EINVAL,
                     "%s%s%s%s is easy to guess: its entropy is about %u bit%s (%zu byte%s), but %d "
                     "bits are required"
                     "\n  tip: create one with: openssl rand -hex 32",
                     name, shown != NULL ? " '" : "", shown != NULL ? shown : "",
                     shown != NULL ? "'" : "", bits, bits == 1 ? "" : "s", n, n == 1 ? "" : "s",
                     KEY_STRENGTH_MIN);
}

static int from_file(struct net_key *ret, const char *file, struct dd_err *err)
{
    const struct key_path path = {
        .dirfd = AT_FDCWD, .name = file, .what = "key file", .shown = file};
    unsigned char *text = malloc(KEY_FILE_MAX + 1);
    if (text == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory for key file '%s'", file);
    int n = key_file_read(&path, text, KEY_FILE_MAX + 1, err);
    int rc = n;
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--; /* a trailing newline added by an editor does not change the key */
    if (n == 0)
        rc = dd_err_set(err, -EINVAL, "key file '%s' is empty", file);
    else if (n > 0 && (rc = check_strength(text, (size_t)n, "key file", file, err)) == 0)
        rc = from_secret(ret, text, (size_t)n, err);
    explicit_bzero(text, KEY_FILE_MAX + 1);
    free(text);
    if (rc == 0)
        (void)snprintf(ret->source, sizeof(ret->source), "key file '%s'", file);
    return rc;
}

static int from_hex(struct net_key *ret, const char *hex, struct dd_err *err)
{
    unsigned char bytes[NET_KEY_LEN];
    if (strlen(hex) == KEY_HEX && key_from_hex(bytes, hex) < 0)
        return dd_err_set(
            err, -EINVAL,
            "DDRUN_KEY must have %d hexadecimal digits (one of its characters is not hexadecimal)",
            KEY_HEX);
    if (key_from_hex(bytes, hex) < 0)
        return dd_err_set(err, -EINVAL,
                          "DDRUN_KEY must have %d hexadecimal digits (it has %zu characters)",
                          KEY_HEX, strlen(hex));
    int rc = check_strength(bytes, sizeof(bytes), "DDRUN_KEY", NULL, err);
    if (rc == 0)
        rc = from_secret(ret, bytes, sizeof(bytes), err);
    explicit_bzero(bytes, sizeof(bytes));
    (void)snprintf(ret->source, sizeof(ret->source), "DDRUN_KEY");
    return rc;
}

/* Return 1 if there is a shared key, 0 if there is none, or -errno with a message. */
static int find_shared(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    const char *file = in->key_file;
    const char *hex = dd_env_get_nonempty(in->env, "DDRUN_KEY");
    int rc;
    if (file == NULL)
        file = dd_env_get_nonempty(in->env, "DDRUN_KEY_FILE");
    if (file != NULL) {
        rc = from_file(ret, file, err);
    } else if (hex != NULL) {
        rc = from_hex(ret, hex, err);
    } else if (in->psk != NULL && in->psk[0] != '\0') {
        rc = from_secret(ret, in->psk, strlen(in->psk), err);
        (void)snprintf(ret->source, sizeof(ret->source), "%s",
                       in->psk_source != NULL ? in->psk_source
                                              : "the launcher's secret of this job");
    } else if (in->use_cookie && in->cookie != NULL) {
        rc = from_secret(ret, in->cookie, strlen(in->cookie), err);
        ret->guessable = true;
        (void)snprintf(ret->source, sizeof(ret->source), "PBS_JOBCOOKIE");
    } else {
        return 0;
    }
    return rc < 0 ? rc : 1;
}

static void no_key(struct net_key *ret, const char *source)
{
    *ret = (struct net_key){.method = NET_KEY_NONE};
    (void)snprintf(ret->source, sizeof(ret->source), "%s", source);
}

/* Return the length of the text without its tips, at most `max`. */
static int first_line(const char *text, int max)
{
    const size_t n = strcspn(text, "\n");
    return n < (size_t)max ? (int)n : max;
}

int net_key_for_leader(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf tried = DD_BUF_INIT(380);
    struct net_key key = {0};
    if (in->insecure) {
        no_key(ret, "--insecure");
        return 0;
    }
    int rc = find_shared(&key, in, err);
    for (int m = 0; rc == 0 && m < NET_KEY_METHOD_MAX; m++) {
        struct dd_err why = {0};
        if (methods[m]->offer == NULL)
            continue;
        if (methods[m]->offer(&key, in, &why) == 0)
            rc = 1;
        else
            (void)dd_buf_printf(&tried, "%s%.*s", tried.len > 0 ? "; " : "",
                                first_line(why.text, 150), why.text);
    }
    if (rc == 0) {
        const char *text = dd_buf_str(&tried);
        return dd_err_set(
            err, -ENOKEY,
            "no key to authenticate the nodes (%s)"
            "\n  tip: use --key-file or DDRUN_KEY_FILE%s, or --insecure on a network without "
            "other users",
            text != NULL ? text : "",
            in->cookie != NULL ? ", or --key-source=pbs-cookie if other users are trusted" : "");
    }
    if (rc > 0)
        *ret = key;
    explicit_bzero(&key, sizeof(key));
    return rc < 0 ? rc : 0;
}

int net_key_for_agent(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    struct net_key key = {0};
    int rc = in->insecure ? 0 : find_shared(&key, in, err);
    if (rc == 0)
        no_key(ret, "");
    else if (rc > 0)
        *ret = key;
    explicit_bzero(&key, sizeof(key));
    return rc < 0 ? rc : 0;
}

static int accept_none(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    if (!in->insecure)
        return dd_err_set(err, -EPERM, "the leader runs with --insecure, but this node does not");
    no_key(ret, "--insecure");
    return 0;
}

static int accept_shared(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    struct net_key key = {0};
    int rc = find_shared(&key, in, err);
    if (rc > 0)
        *ret = key;
    else if (rc == 0)
        rc = dd_err_set(
            err, -ENOKEY,
            "the leader uses a key file, DDRUN_KEY or another secret that this node does not "
            "have");
    explicit_bzero(&key, sizeof(key));
    return rc < 0 ? rc : 0;
}

int net_key_may_accept(const struct net_key_input *in, enum net_key_method method,
                       struct dd_err *err)
{
    struct net_key own = {0};
    if (method < NET_KEY_NONE || method >= NET_KEY_METHOD_MAX)
        return dd_err_set(err, -ENOTSUP, "unknown key method %d of the leader", (int)method);
    if (methods[method]->accept == NULL)
        return 0;
    if (in->insecure)
        return dd_err_set(err, -EPERM,
                          "the leader's key comes from %s, but this node runs with --insecure",
                          methods[method]->name);
    int rc = net_key_for_agent(&own, in, err);
    if (rc == 0 && own.method == NET_KEY_SHARED)
        rc = dd_err_set(err, -EPERM,
                        "the leader's key comes from %s, and this node uses its own (%s)",
                        methods[method]->name, own.source);
    explicit_bzero(&own, sizeof(own));
    return rc;
}

int net_key_accept(struct net_key *ret, const struct net_key_input *in, enum net_key_method method,
                   const char *cred, struct dd_err *err)
{
    int rc = net_key_may_accept(in, method, err);
    if (rc < 0)
        return rc;
    if (method == NET_KEY_NONE)
        return accept_none(ret, in, err);
    if (method == NET_KEY_SHARED)
        return accept_shared(ret, in, err);
    return methods[method]->accept(ret, in, cred, err);
}

int net_key_prepare(enum net_key_method method, struct dd_err *err)
{
    return methods[method]->prepare != NULL ? methods[method]->prepare(err) : 0;
}

bool net_key_waits(enum net_key_method method)
{
    return method == NET_KEY_MUNGE;
}

int net_key_credential(char **ret, const struct net_key *key, const struct net_key_input *in,
                       struct dd_err *err)
{
    if (methods[key->method]->credential == NULL)
        return dd_err_set(err, -EINVAL, "no credential can be made for this key source: %s",
                          methods[key->method]->name);
    return methods[key->method]->credential(ret, key, in, err);
}

void net_key_cleanup(const struct net_key *key, const struct net_key_input *in)
{
    if (methods[key->method]->cleanup != NULL)
        methods[key->method]->cleanup(key, in);
}

static int hmac(unsigned char out[NET_KEY_LEN], const unsigned char key[NET_KEY_LEN],
                const char *label, const char *text)
{
    char data[512];
    const int n = snprintf(data, sizeof(data), "%s%c%s", label, '\0', text);
    if (n >= (int)sizeof(data))
        return -EIO;
    return net_hmac_sha256(out, (struct net_piece){key, NET_KEY_LEN},
                           (struct net_piece){data, (size_t)n}, NULL);
}

int net_key_psk(unsigned char out[NET_KEY_LEN], const struct net_key *key,
                const struct net_key_input *in)
{
    if (in->run != NULL)
        return hmac(out, key->bytes, "ddrun-run-1", in->run);
    memcpy(out, key->bytes, NET_KEY_LEN);
    return 0;
}

static uint64_t seed_of_starter(char *const *env)
{
    const char *text = dd_env_get_nonempty(env, "DDRUN_PORT_SEED");
    uint64_t seed = 0;
    int end = 0;
    return text != NULL && strlen(text) == 16 &&
                   sscanf(text, "%16" SCNx64 "%n", &seed, &end) == 1 && end == 16
               ? seed
               : 0;
}

uint64_t net_key_seed(const struct net_key_input *in)
{
    struct net_key key = {0};
    unsigned char sum[NET_KEY_LEN];
    uint64_t seed = 0;
    if (net_key_for_agent(&key, in, NULL) == 0 && key.method == NET_KEY_SHARED && !key.guessable &&
        hmac(sum, key.bytes, "ddrun-ports-1", in->job_id != NULL ? in->job_id : "") == 0)
        memcpy(&seed, sum, sizeof(seed));
    explicit_bzero(&key, sizeof(key));
    return seed != 0 ? seed : seed_of_starter(in->env);
}
