#include "net/home_dir.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/strv.h"
#include "net/crypto.h"
#include "net/key_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_ROOM = 180 };

/* Encode a job id as the prefix of a file name: [A-Za-z0-9._-] are kept, other bytes become %XX. A
 * long id is truncated and made unique by its SHA-256. */
static int home_job_name(char out[256], const char *job_id)
{
    size_t o = 0;
    for (const char *c = job_id; *c != '\0'; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || *c == '_' || *c == '-' ||
                     (*c == '.' && c != job_id);
        if (o + 3 > NAME_ROOM) {
            unsigned char sum[NET_SHA256];
            int rc = net_sha256(sum, &(struct net_piece){job_id, strlen(job_id)}, 1, NULL);
            if (rc < 0)
                return rc;
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

static int home_check_dir(int fd, const char *dir, struct dd_err *err)
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

int home_file_open(struct home_file *ret, const struct home_file_name *name, bool create,
                   struct dd_err *err)
{
    const char *home = dd_env_get_nonempty(name->env, "HOME");
    struct home_file f = {.dirfd = -1};
    if (home == NULL)
        return dd_err_set(err, -ENOKEY, "no home directory: HOME is not set, or empty");
    if (home[0] != '/')
        return dd_err_set(err, -ENOKEY, "no home directory: HOME=%.80s is not an absolute path",
                          home);
    if ((size_t)snprintf(f.dir, sizeof(f.dir), "%s/.ddrun", home) >= sizeof(f.dir))
        return dd_err_set(err, -ENAMETOOLONG, "the home directory's path '%.80s...' is too long",
                          home);
    if (name->job_id == NULL || name->job_id[0] == '\0')
        return dd_err_set(err, -EINVAL, "cannot name a file in '%s' after an empty job id", f.dir);
    int rc = home_job_name(f.name, name->job_id);
    if (rc < 0)
        return dd_err_set(err, -EINVAL, "cannot hash the job id '%.80s' with SHA-256: %s",
                          name->job_id, strerror(-rc));
    if (create && mkdir(f.dir, 0700) < 0 && errno != EEXIST)
        return dd_err_set(err, -errno, "cannot create directory '%s': %m", f.dir);
    DD_AUTO(fd) int fd = open(f.dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return dd_err_set(err, -errno, "cannot open directory '%s': %m", f.dir);
    rc = home_check_dir(fd, f.dir, err);
    if (rc < 0)
        return rc;
    const size_t n = strlen(f.name);
    (void)snprintf(f.name + n, sizeof(f.name) - n, ".%.40s", name->suffix);
    (void)snprintf(f.shown, sizeof(f.shown), "%s/%s", f.dir, f.name);
    f.dirfd = DD_TAKE_FD(fd);
    *ret = f;
    return 0;
}

void home_file_close(struct home_file *f)
{
    if (f->dirfd >= 0)
        (void)close(f->dirfd);
    f->dirfd = -1;
}

int home_file_read(const struct home_file *f, const char *what, unsigned char *out, size_t size,
                   struct dd_err *err)
{
    const struct key_path path = {
        .dirfd = f->dirfd, .name = f->name, .what = what, .shown = f->shown, .flags = O_NOFOLLOW};
    return key_file_read(&path, out, size, err);
}

/* Write to a temporary file and rename it. The temporary name is random: process ids repeat across
 * machines. */
int home_file_write(const struct home_file *f, const void *text, size_t n, time_t *ret_now,
                    struct dd_err *err)
{
    unsigned char some[NET_KEY_LEN];
    char hex[KEY_HEX + 1];
    char part[64];
    struct stat st = {0};
    int rc = net_key_random(some);
    if (rc < 0)
        return dd_err_set(err, rc, "getrandom failed: %s", strerror(-rc));
    key_to_hex(hex, some);
    (void)snprintf(part, sizeof(part), ".new-%.32s", hex);
    DD_AUTO(fd) int fd = openat(f->dirfd, part,
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return dd_err_set(err, -errno, "cannot create a file in directory '%s': %m", f->dir);
    rc = dd_write_full(fd, text, n);
    if (rc == 0 &&
        (fsync(fd) < 0 || fstat(fd, &st) < 0 || renameat(f->dirfd, part, f->dirfd, f->name) < 0))
        rc = -errno;
    *ret_now = st.st_mtime;
    if (rc == 0)
        return 0;
    (void)unlinkat(f->dirfd, part, 0);
    errno = -rc;
    return dd_err_set(err, rc, "cannot write '%s': %m", f->shown);
}

int home_file_remove(const struct home_file *f)
{
    return unlinkat(f->dirfd, f->name, 0) < 0 ? -errno : 0;
}

void home_file_sweep(const struct home_file *f, time_t now)
{
    key_sweep(f->dirfd, now);
}
