/* Key source: a file in the home directory that all nodes share. */
#include "net/key_inner.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/strv.h"
#include "net/crypto.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* $HOME/.ddrun, which contains one file per daemon. */
struct place {
    int dirfd;
    char dir[PATH_MAX];
    char name[256];
    char shown[PATH_MAX + 260];
};

enum { NAME_ROOM = 180 };

/* Encode a job id as the prefix of a file name: [A-Za-z0-9._-] are kept, other bytes become %XX. A
 * long id is truncated and made unique by its SHA-256. */
static int job_name(char out[256], const char *job_id)
{
    size_t o = 0;
    for (const char *c = job_id; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || *c == '_' || *c == '-' ||
                     (*c == '.' && c != job_id);
        if (o + 3 > NAME_ROOM) {
            unsigned char sum[EVP_MAX_MD_SIZE];
            if (net_crypto_start(NULL) < 0 ||
                EVP_Digest(job_id, strlen(job_id), sum, NULL, EVP_sha256(), NULL) != 1)
                return -EIO;
            out[o++] = '~';
            for (size_t i = 0; i < 16; i++, o += 2)
                (void)snprintf(out + o, 3, "%02x", sum[i]);
            break;
        }
        if (plain)
            out[o++] = *c;
        else
            o += (size_t)snprintf(out + o, 4, "%%%02X", (unsigned char)*c);
    }
    out[o] = '\0';
    return 0;
}

static int check_dir(int fd, const char *dir, struct dd_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return dd_err_set(err, -errno, "cannot examine '%s': %m", dir);
    if (st.st_uid != geteuid())
        return dd_err_set(err, -EINVAL, "'%s' belongs to uid %u, not to you (uid %u)", dir,
                          (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 022) != 0)
        return dd_err_set(err, -EINVAL,
                          "other users can write to '%s' (mode %04o)"
                          "\n  tip: chmod 700 '%s'",
                          dir, (unsigned)st.st_mode & 07777, dir);
    return 0;
}

static int open_place(struct place *p, const struct net_key_input *in, bool create,
                      struct dd_err *err)
{
    const char *home = dd_env_get_nonempty(in->env, "HOME");
    if (home == NULL || home[0] != '/')
        return dd_err_set(err, -ENOKEY, "no home directory (HOME is not set)");
    if ((size_t)snprintf(p->dir, sizeof(p->dir), "%s/.ddrun", home) >= sizeof(p->dir))
        return dd_err_set(err, -ENAMETOOLONG, "the path of the home directory is too long");
    if (in->job_id == NULL || in->job_id[0] == '\0' || job_name(p->name, in->job_id) < 0)
        return dd_err_set(err, -EINVAL, "no job id to name the key file");
    if (create && mkdir(p->dir, 0700) < 0 && errno != EEXIST)
        return dd_err_set(err, -errno, "cannot create directory '%s': %m", p->dir);
    DD_AUTO(fd) int fd = open(p->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return dd_err_set(err, -errno, "cannot open directory '%s': %m", p->dir);
    int rc = check_dir(fd, p->dir, err);
    if (rc == 0)
        p->dirfd = DD_TAKE_FD(fd);
    return rc;
}

static int take_place(struct place *p, const struct net_key_input *in, const char *tag, bool create,
                      struct dd_err *err)
{
    int rc = open_place(p, in, create, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(p->name);
    (void)snprintf(p->name + n, sizeof(p->name) - n, ".%.*s.key", KEY_TAG, tag);
    (void)snprintf(p->shown, sizeof(p->shown), "%s/%s", p->dir, p->name);
    return 0;
}

/* Derive the tag of the key's file from the key, so that two daemons of one job never use the same
 * file. */
static int tag_of(char out[KEY_TAG + 1], const unsigned char key[NET_KEY_LEN])
{
    static const char label[] = "ddrun-key-file-1";
    unsigned char text[sizeof(label) + NET_KEY_LEN];
    unsigned char sum[EVP_MAX_MD_SIZE];
    memcpy(text, label, sizeof(label));
    memcpy(text + sizeof(label), key, NET_KEY_LEN);
    int ok = net_crypto_start(NULL) == 0 &&
             EVP_Digest(text, sizeof(text), sum, NULL, EVP_sha256(), NULL) == 1;
    explicit_bzero(text, sizeof(text));
    if (!ok)
        return -EIO;
    for (size_t i = 0; i < KEY_TAG / 2; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", sum[i]);
    return 0;
}

static int key_home_read_key(const struct place *p, unsigned char out[NET_KEY_LEN],
                             struct dd_err *err)
{
    const struct key_path path = {.dirfd = p->dirfd,
                                  .name = p->name,
                                  .what = "key file",
                                  .shown = p->shown,
                                  .flags = O_NOFOLLOW};
    char text[KEY_HOME_MAX + 1];
    int n = key_file_read(&path, (unsigned char *)text, sizeof(text), err);
    if (n < 0)
        return n;
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0'; /* the second line names the owning process */
    int rc = key_from_hex(out, text);
    explicit_bzero(text, sizeof(text));
    if (rc < 0)
        return dd_err_set(err, rc, "key file '%s' is damaged", p->shown);
    return 0;
}

/* Write to a temporary file and rename it, so that no agent reads a partial key. The temporary name
 * is random: process ids repeat across machines. */
static int key_home_write_key(const struct place *p, const struct net_key *key, time_t *ret_now,
                              struct dd_err *err)
{
    unsigned char some[NET_KEY_LEN];
    char part[64];
    char text[KEY_HEX + 1 + DD_OWNER_MAX];
    struct stat st = {0};
    int rc = net_key_random(some);
    if (rc < 0)
        return dd_err_set(err, rc, "getrandom failed: %s", strerror(-rc));
    key_to_hex(text, some);
    (void)snprintf(part, sizeof(part), ".new-%.32s", text);
    DD_AUTO(fd) int fd = openat(p->dirfd, part,
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return dd_err_set(err, -errno, "cannot write to directory '%s': %m", p->dir);
    key_to_hex(text, key->bytes);
    text[KEY_HEX] = '\n';
    dd_owner_text(text + KEY_HEX + 1);
    rc = dd_write_full(fd, text, strlen(text));
    explicit_bzero(text, sizeof(text));
    if (rc == 0 &&
        (fsync(fd) < 0 || fstat(fd, &st) < 0 || renameat(p->dirfd, part, p->dirfd, p->name) < 0))
        rc = -errno;
    *ret_now = st.st_mtime;
    if (rc == 0)
        return 0;
    (void)unlinkat(p->dirfd, part, 0);
    errno = -rc;
    return dd_err_set(err, rc, "cannot write '%s': %m", p->shown);
}

static void name_source(struct net_key *key, const struct place *p)
{
    (void)snprintf(key->source, sizeof(key->source), "'%.280s'", p->shown);
}

static int key_home_offer(struct net_key *ret, const struct net_key_input *in, struct dd_err *err)
{
    struct net_key key = {.method = NET_KEY_HOME};
    struct place p = {.dirfd = -1};
    char tag[KEY_TAG + 1];
    time_t now = 0;
    int rc = net_key_random(key.bytes);
    if (rc < 0)
        return dd_err_set(err, rc, "getrandom failed: %s", strerror(-rc));
    if (tag_of(tag, key.bytes) < 0)
        return dd_err_set(err, -EIO, "cannot compute the tag of the key");
    rc = take_place(&p, in, tag, true, err);
    if (rc < 0)
        return rc;
    rc = key_home_write_key(&p, &key, &now, err);
    if (rc == 0)
        key_sweep(p.dirfd, now);
    (void)close(p.dirfd);
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
        return dd_err_set(err, rc, "cannot hash the key: SHA-256 is not available");
    *ret = strdup(tag);
    return *ret != NULL ? 0 : dd_err_set(err, -ENOMEM, "out of memory");
}

static int accept_file(struct net_key *ret, const struct net_key_input *in, const char *cred,
                       struct dd_err *err)
{
    struct net_key key = {.method = NET_KEY_HOME};
    struct place p = {.dirfd = -1};
    char tag[KEY_TAG + 1];
    if (cred == NULL || !key_is_tag(cred) || cred[KEY_TAG] != '\0')
        return dd_err_set(err, -EPROTO, "the leader did not name its key file");
    int rc = take_place(&p, in, cred, false, err);
    if (rc == 0) {
        rc = key_home_read_key(&p, key.bytes, err);
        (void)close(p.dirfd);
    }
    if (rc == 0 && (tag_of(tag, key.bytes) < 0 || strcmp(tag, cred) != 0))
        rc = dd_err_set(err, -EINVAL, "key file '%s' is damaged", p.shown);
    name_source(&key, &p);
    if (rc == 0)
        *ret = key;
    else if (rc == -ENOENT)
        (void)dd_err_where(
            err, rc,
            "the leader's key file is not in this node's home directory: the directory is not "
            "shared, or the file has not appeared yet; without a shared home directory, use "
            "MUNGE or --key-file");
    explicit_bzero(&key, sizeof(key));
    return rc;
}

static void cleanup(const struct net_key *key, const struct net_key_input *in)
{
    struct place p = {.dirfd = -1};
    char tag[KEY_TAG + 1];
    if (tag_of(tag, key->bytes) < 0 || take_place(&p, in, tag, false, NULL) < 0)
        return;
    (void)unlinkat(p.dirfd, p.name, 0);
    (void)close(p.dirfd);
}

const struct key_ops key_ops_home = {.name = "the home directory",
                                     .offer = key_home_offer,
                                     .accept = accept_file,
                                     .credential = key_home_credential,
                                     .cleanup = cleanup};
