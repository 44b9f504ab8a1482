#include "stage/collect_write.h"

#include "base/auto.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ATTEMPTS = 8, WRITE_BACK = 64 << 20 };

/* ---- directories ---- */

/* Open DIR, and create it with the directories above it if it does not exist. Return a descriptor
 * or -errno. */
static int open_top(const char *dir)
{
    char path[STAGE_PATH_MAX + 1];
    if (strlen(dir) >= sizeof(path))
        return -ENAMETOOLONG;
    (void)snprintf(path, sizeof(path), "%s", dir);
    int fd = dd_open_unplanted(path, O_RDONLY | O_DIRECTORY, 0);
    for (char *c = path + 1; fd == -ENOENT; c++) {
        const char at = *c;
        if (at != '/' && at != '\0')
            continue;
        *c = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            return -errno;
        *c = at;
        if (at == '\0')
            return dd_open_unplanted(path, O_RDONLY | O_DIRECTORY, 0);
    }
    return fd;
}

/* Open the directory `name` in the directory `at`, or create it. Takes at. */
static int open_next(int at, const char *name, mode_t mode)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(at, name, flags);
    if (fd < 0 && errno == ENOENT && (mkdirat(at, name, mode) == 0 || errno == EEXIST))
        fd = openat(at, name, flags);
    const int rc = fd >= 0 ? fd : -errno;
    close(at);
    return rc;
}

/* Open the directory of the file, and copy the last component of its path to f->name. */
static int open_parent(struct collect_file *f, const struct collect_target *t, const char *path)
{
    const mode_t mode = f->cache ? 0700 : 0777;
    int at = f->cache ? fcntl(t->top, F_DUPFD_CLOEXEC, 0) : open_top(t->dir);
    if (at >= 0 && t->folder != NULL)
        at = open_next(at, t->folder, mode);
    const char *s = path;
    for (const char *slash; at >= 0 && (slash = strchr(s, '/')) != NULL; s = slash + 1) {
        (void)snprintf(f->name, sizeof(f->name), "%.*s", (int)(slash - s), s);
        at = open_next(at, f->name, mode);
    }
    (void)snprintf(f->name, sizeof(f->name), "%.*s", STAGE_NAME_MAX, s);
    return at;
}

/* ---- begin ---- */

/* Return 1: DIR has no such file, or an older one; 0: DIR has the file; < 0 with a message: the
 * file in DIR must stay. */
static int compare_existing(const struct collect_file *f, struct dd_err *err)
{
    struct stat st;
    if (fstatat(f->parent, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 1 : dd_err_set(err, -errno, "cannot examine the destination: %m");
    if (!S_ISREG(st.st_mode))
        return dd_err_set(err, -EEXIST, "the destination exists and is not a file");
    if (f->cache) {
        const struct timespec used[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
        (void)utimensat(f->parent, f->name, used, AT_SYMLINK_NOFOLLOW);
        return 0;
    }
    const struct timespec *there = &st.st_mtim;
    const bool same = there->tv_sec == f->mtime.tv_sec;
    if (same && there->tv_nsec == f->mtime.tv_nsec && (uint64_t)st.st_size == f->size)
        return 0;
    return there->tv_sec > f->mtime.tv_sec || (same && there->tv_nsec > f->mtime.tv_nsec)
               ? dd_err_set(err, -EEXIST, "the destination is newer")
               : 1;
}

static int check_space(const struct collect_file *f, struct dd_err *err)
{
    struct statvfs vfs;
    if (fstatvfs(f->parent, &vfs) < 0 || vfs.f_frsize == 0)
        return 0; /* unknown: write() reports a lack of space */
    return f->size / vfs.f_frsize < vfs.f_bavail
               ? 0
               : dd_err_set(err, -ENOSPC,
                            "not enough space: the file needs %" PRIu64 " bytes, %" PRIu64
                            " are available",
                            f->size, (uint64_t)vfs.f_bavail * vfs.f_frsize);
}

/* Set f->temporary to a new name. */
static int make_name(struct collect_file *f)
{
    uint64_t bits[2];
    if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
        return -EIO;
    (void)snprintf(f->temporary, sizeof(f->temporary), ".ddrun-%016" PRIx64 "%08" PRIx32, bits[0],
                   (uint32_t)bits[1]);
    return 0;
}

/* Prefer O_TMPFILE: the kernel removes such a file even if this process is killed. */
static int open_temporary(struct collect_file *f, bool named)
{
    f->temporary[0] = '\0';
    f->fd = named ? -1 : openat(f->parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    for (int i = 0; f->fd < 0 && i < ATTEMPTS; i++) {
        if (make_name(f) < 0)
            return -EIO;
        f->fd = openat(f->parent, f->temporary,
                       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (f->fd < 0 && errno != EEXIST)
            break;
    }
    return f->fd >= 0 ? 0 : -errno;
}

enum collect_verdict collect_file_begin(struct collect_file *f, const struct collect_target *t,
                                        const struct collect_frame *offer, struct dd_err *err)
{
    *f = COLLECT_FILE_NONE;
    f->cache = t->cache;
    f->size = offer->size;
    f->mode = offer->mode & (f->cache ? 0755 : 0777);
    f->mtime = (struct timespec){.tv_sec = offer->mtime, .tv_nsec = offer->nsec};
    f->parent = open_parent(f, t, offer->text);
    int rc = f->parent < 0
                 ? dd_err_set(err, f->parent, "cannot create the directory of the file in '%s': %s",
                              t->dir, strerror(-f->parent))
                 : compare_existing(f, err);
    const bool have = rc == 0;
    rc = rc > 0 ? check_space(f, err) : rc;
    if (rc == 0 && !have && (rc = open_temporary(f, t->named)) < 0) {
        f->temporary[0] = '\0';
        (void)dd_err_set(err, rc, "cannot create a file in '%s': %s", t->dir, strerror(-rc));
    }
    if (rc < 0 || have)
        collect_file_drop(f);
    return rc < 0 ? COLLECT_REFUSED : have ? COLLECT_HAVE : COLLECT_WANT;
}

/* ---- data ---- */

/* Bound the dirty data of a file to two parts of WRITE_BACK bytes: otherwise fsync() could block
 * for minutes, and the senders would time out. */
static void write_back(const struct collect_file *f, uint64_t before)
{
    const uint64_t at = f->got / WRITE_BACK * WRITE_BACK;
    if (at == before / WRITE_BACK * WRITE_BACK)
        return;
    (void)sync_file_range(f->fd, (off_t)(at - WRITE_BACK), WRITE_BACK, SYNC_FILE_RANGE_WRITE);
    if (at > WRITE_BACK)
        (void)sync_file_range(f->fd, (off_t)(at - 2 * WRITE_BACK), WRITE_BACK,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
}

int collect_file_write(struct collect_file *f, const void *p, size_t n, struct dd_err *err)
{
    const unsigned char *from = p;
    const uint64_t before = f->got;
    if (n > f->size - f->got)
        return dd_err_set(err, -EPROTO, "the sender sent more data than announced");
    while (n > 0) {
        const ssize_t k = write(f->fd, from, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            const int rc = k < 0 ? -errno : -EIO;
            return dd_err_set(err, rc, "cannot write the destination: %s", strerror(-rc));
        }
        from += k;
        n -= (size_t)k;
        f->got += (uint64_t)k;
    }
    write_back(f, before);
    return 0;
}

/* Name an O_TMPFILE file. linkat() never replaces a file that another process has created. */
static int link_temporary(struct collect_file *f, const char *name)
{
    char fd[48];
    (void)snprintf(fd, sizeof(fd), "/proc/self/fd/%d", f->fd);
    return linkat(AT_FDCWD, fd, f->parent, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* Give the file its name, unless another job has created a file of this name meanwhile. */
static int publish_new(struct collect_file *f)
{
    if (f->temporary[0] == '\0' || linkat(f->parent, f->temporary, f->parent, f->name, 0) == 0 ||
        errno == EEXIST)
        return 0;                              /* the temporary name is removed with f */
    if (errno != EPERM && errno != EOPNOTSUPP) /* these: the file system has no hard links */
        return -errno;
    if (renameat(f->parent, f->temporary, f->parent, f->name) < 0)
        return -errno;
    f->temporary[0] = '\0';
    return 0;
}

static int publish(struct collect_file *f)
{
    int rc = f->temporary[0] == '\0' ? link_temporary(f, f->name) : -EEXIST;
    if (rc != -EEXIST)
        return rc;
    if (f->cache)
        return publish_new(f);
    if (f->temporary[0] == '\0') {
        rc = make_name(f);
        rc = rc == 0 ? link_temporary(f, f->temporary) : rc;
        if (rc < 0) {
            f->temporary[0] = '\0';
            return rc;
        }
    }
    if (renameat(f->parent, f->temporary, f->parent, f->name) < 0)
        return -errno;
    f->temporary[0] = '\0';
    return 0;
}

int collect_file_commit(struct collect_file *f, struct dd_err *err)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, f->mtime};
    if (f->got != f->size)
        return dd_err_set(err, -EPROTO, "the sender sent less data than announced");
    if (fchmod(f->fd, f->mode) < 0 || futimens(f->fd, times) < 0 || fsync(f->fd) < 0)
        return dd_err_set(err, -errno, "cannot complete the destination: %m");
    int rc = compare_existing(f, err); /* another job may have written the file meanwhile */
    if (rc < 0)
        return rc;
    rc = rc > 0 ? publish(f) : 0;
    if (rc == 0 && fsync(f->parent) < 0 && errno != EINVAL)
        rc = -errno;
    if (rc < 0)
        return dd_err_set(err, rc, "cannot put the destination in place: %s", strerror(-rc));
    collect_file_drop(f);
    return 0;
}

void collect_file_drop(struct collect_file *f)
{
    if (f->parent >= 0 && f->temporary[0] != '\0')
        (void)unlinkat(f->parent, f->temporary, 0);
    if (f->fd >= 0)
        close(f->fd);
    if (f->parent >= 0)
        close(f->parent);
    *f = COLLECT_FILE_NONE;
}
