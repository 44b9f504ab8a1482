/* Key source: a file in the home directory that all nodes share. */
#include "net/key_inner.h"

#include "net/crypto.h"
#include "net/home_dir.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int take_place(struct home_file *p, const struct net_key_input *in, const char *tag,
                      bool create, struct dd_err *err)
{
    char suffix[KEY_TAG + 8];
    (void)snprintf(suffix, sizeof(suffix), "%.*s.key", KEY_TAG, tag);
    return home_file_open(
        p, &(struct home_file_name){.env = in->env, .job_id = in->job_id, .suffix = suffix}, create,
        err);
}

/* Derive the tag of the key's file from the key, so that two daemons of one job never use the same
 * file. */
static int tag_of(char out[KEY_TAG + 1], const unsigned char key[NET_KEY_LEN])
{
    static const char label[] = "ddrun-key-file-1";
    const struct net_piece pieces[] = {{label, sizeof(label)}, {key, NET_KEY_LEN}};
    unsigned char sum[NET_SHA256];
    int rc = net_sha256(sum, pieces, 2, NULL);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < KEY_TAG / 2; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return 0;
}

static int key_home_read_key(const struct home_file *p, unsigned char out[NET_KEY_LEN],
                             struct dd_err *err)
{
    char text[KEY_HOME_MAX + 1];
    int n = home_file_read(p, "key file", (unsigned char *)text, sizeof(text), err);
    if (n < 0)
        return n;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0'; /* the second line names the owning process */
    int rc = key_from_hex(out, text);
    explicit_bzero(text, sizeof(text));
    if (rc < 0)
        return dd_err_set(err, rc, "key file '%s' is damaged: it does not begin with a key",
                          p->shown);
    return 0;
}

static int key_home_write_key(const struct home_file *p, const struct net_key *key, time_t *ret_now,
                              struct dd_err *err)
{
    char text[KEY_HEX + 1 + DD_OWNER_MAX];
    key_to_hex(text, key->bytes);
    text[KEY_HEX] = '\n';
    dd_owner_text(text + KEY_HEX + 1);
    int rc = home_file_write(p, text, strlen(text), ret_now, err);
    explicit_bzero(text, sizeof(text));
    return rc;
}

static void name_source(struct net_key *key, const struct home_file *p)
{
    (void)snprintf(key->source, sizeof(key->source), "'%.280s'", p->shown);
}

static int key_home_offer(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    struct net_key key = {.method = NET_KEY_HOME};
    struct home_file p = {.dirfd = -1};
    char tag[KEY_TAG + 1];
    time_t now = 0;
    int rc = net_key_random(key.bytes);
    if (rc < 0)
        return dd_err_set(err, rc, "getrandom failed: %s", strerror(-rc));
    rc = tag_of(tag, key.bytes);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot hash the key with SHA-256: %s", strerror(-rc));
    rc = take_place(&p, in, tag, true, err);
    if (rc < 0)
        return rc;
    rc = key_home_write_key(&p, &key, &now, err);
    if (rc == 0)
        home_file_sweep(&p, now);
    home_file_close(&p);
    name_source(&key, &p);
    if (rc == 0)
        *ret = key;
    explicit_bzero(&key, sizeof(key));
    return rc;
}

/* Name the leader's key file in the credential. */
static int key_home_credential(char **ret, const struct net_key *key,
                               const struct net_key_input *in, struct dd_err *err)
{
    char tag[KEY_TAG + 1];
    (void)in;
    int rc = tag_of(tag, key->bytes);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot hash the key with SHA-256: %s", strerror(-rc));
    *ret = strdup(tag);
    return *ret != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory for the key file's name");
}

static int accept_file(struct net_key *ret, const struct net_key_input *in, const char *cred,
                       struct dd_err *err)
{
    struct net_key key = {.method = NET_KEY_HOME};
    struct home_file p = {.dirfd = -1};
    char tag[KEY_TAG + 1];
    if (cred == NULL || !key_is_tag(cred) || cred[KEY_TAG] != '\0')
        return dd_err_set(err, -EPROTO, "the leader sent no valid name of a key file");
    int rc = take_place(&p, in, cred, false, err);
    if (rc == 0) {
        rc = key_home_read_key(&p, key.bytes, err);
        home_file_close(&p);
    }
    if (rc == 0 && (rc = tag_of(tag, key.bytes)) < 0)
        (void)dd_err_set(err, rc, "cannot hash the key with SHA-256: %s", strerror(-rc));
    else if (rc == 0 && strcmp(tag, cred) != 0)
        rc = dd_err_set(err, -EINVAL, "key file '%s' does not contain the leader's key", p.shown);
    name_source(&key, &p);
    if (rc == 0)
        *ret = key;
    else if (rc == -ENOENT)
        (void)dd_err_where(
            err, rc,
            "the leader's key file is not in this node's home directory: the directory is not "
            "shared, or the file has not appeared yet");
    explicit_bzero(&key, sizeof(key));
    return rc;
}

static void cleanup(const struct net_key *key, const struct net_key_input *in)
{
    struct home_file p = {.dirfd = -1};
    char tag[KEY_TAG + 1];
    if (tag_of(tag, key->bytes) < 0 || take_place(&p, in, tag, false, NULL) < 0)
        return;
    (void)home_file_remove(&p);
    home_file_close(&p);
}

const struct key_ops key_ops_home = {.name = "the home directory",
                                     .offer = key_home_offer,
                                     .accept = accept_file,
                                     .credential = key_home_credential,
                                     .cleanup = cleanup};
