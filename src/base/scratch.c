#include "base/scratch.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREFIX "ddrun_"
#define OWNER ".ddrun-owner"

enum {
    NAME_TRIES = 8,
    ANSWER_MS = 10000, /* time limit for a file system to respond */
    DEPTH_MAX = 64,    /* maximum depth of directories; each level costs a descriptor */
    LOOK_AT = 4096, /* maximum number of entries examined in the parent; any user can create more */
    UNMAPPED = 65534 /* owner of the system's directories as seen in a user namespace */
};

/* ---- removing ---- */

/* Open the directory `name` if it is private to this user; otherwise return -errno. */
static int open_private(int at, const char *name, struct stat *st)
{
    DD_AUTO(fd) int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, st) < 0)
        return -errno;
    return st->st_uid == geteuid() && (st->st_mode & 077) == 0 ? DD_TAKE_FD(fd) : -EPERM;
}

static int scratch_empty(int fd, dev_t dev, int depth);

static int remove_directory(int at, const char *name, dev_t dev, int depth)
{
    struct stat st;
    DD_AUTO(fd) int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() || st.st_dev != dev || depth == 0)
        return -EXDEV;
    int rc = scratch_empty(DD_TAKE_FD(fd), dev, depth - 1);
    return rc == 0 && unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : rc;
}

/* Try unlink first, which needs no check of the entry's type that could become outdated. */
static int remove_entry(int at, const char *name, dev_t dev, int depth)
{
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
        return 0;
    return errno == EISDIR || errno == EPERM ? remove_directory(at, name, dev, depth) : -errno;
}

/* Remove the content of directory fd; takes fd. */
static int scratch_empty(int fd, dev_t dev, int depth)
{
    int rc = 0;
    const struct dirent *e;
    DIR *d = fdopendir(fd);
    if (d == NULL) {
        rc = -errno;
        close(fd);
        return rc;
    }
    while ((e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            remove_entry(dirfd(d), e->d_name, dev, depth) < 0)
            rc = -ENOTEMPTY;
    (void)closedir(d);
    return rc;
}

/* Remove the name only while it still refers to the directory `fd`. */
static int remove_name(int fd, const char *path)
{
    struct stat st;
    struct stat named;
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    DD_AUTO(fd) int parent = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (named.st_dev != st.st_dev || named.st_ino != st.st_ino)
        return 0;
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

static int remove_open(int dir, const char *path)
{
    struct stat st;
    if (fstat(dir, &st) < 0)
        return -errno;
    if (st.st_nlink ==
        0) /* another process of this user has removed it; its name may be another directory's */
        return 0;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : scratch_empty(fd, st.st_dev, DEPTH_MAX);
    return rc == 0 ? remove_name(dir, path) : rc;
}

int dd_scratch_remove(const struct dd_scratch *s)
{
    return s->path != NULL ? remove_open(s->fd, s->path) : 0;
}

int dd_scratch_clear(const struct dd_scratch *s, const char *name)
{
    struct stat st;
    if (s->path == NULL)
        return 0;
    return fstat(s->fd, &st) < 0 ? -errno : remove_entry(s->fd, name, st.st_dev, DEPTH_MAX);
}

/* ---- making ---- */

/* True if only root and this user can rename or remove this user's entries there. */
static bool keeps_names(int fd, struct stat *st)
{
    if (fd < 0 || fstat(fd, st) < 0)
        return false;
    const bool ours = st->st_uid == 0 || st->st_uid == geteuid() || st->st_uid == UNMAPPED;
    return ours && ((st->st_mode & (S_IWGRP | S_IWOTH)) == 0 || (st->st_mode & S_ISVTX) != 0);
}

/* Open the directory at a path without symbolic links. -EPERM: other users can replace a directory
 * on the path. */
static int open_kept(const char *path)
{
    char *next = NULL;
    struct stat st;
    DD_AUTO(free) char *names = strdup(path);
    DD_AUTO(fd) int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (names == NULL)
        return -ENOMEM;
    if (fd < 0)
        return -errno;
    for (const char *name = strtok_r(names, "/", &next); name != NULL;
         name = strtok_r(NULL, "/", &next)) {
        if (!keeps_names(fd, &st))
            return -EPERM;
        int below = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below < 0)
            return -errno;
        close(fd);
        fd = below;
    }
    return keeps_names(fd, &st) ? DD_TAKE_FD(fd) : -EPERM;
}

static int scratch_random_name(char *name, size_t size)
{
    uint64_t random;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random))
        return -EIO;
    (void)snprintf(name, size, PREFIX "%016" PRIx64, random);
    return 0;
}

/* In a child: create a directory and remove it. If the file system hangs, only the child hangs, and
 * it holds no descriptor of the caller. */
__attribute__((noreturn)) static void try_directory(int at, const char *name, int done)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        (void)dup2(done, fd);
    (void)(mkdirat(at, name, 0700) == 0 && unlinkat(at, name, AT_REMOVEDIR) == 0);
    _exit(0);
}

/* True for a file system on a block device or in memory, and for that of the root directory,
 * without which no program would start. Any other one, and FUSE on a block device, may be served by
 * a machine or a process that does not respond. */
static bool is_local(int at)
{
    struct stat st;
    struct stat root;
    struct statfs fs;
    if (fstat(at, &st) < 0 || fstatfs(at, &fs) < 0 || fs.f_type == FUSE_SUPER_MAGIC)
        return false;
    return major(st.st_dev) != 0 || fs.f_type == TMPFS_MAGIC ||
           (stat("/", &root) == 0 && st.st_dev == root.st_dev);
}

/* Check that creating a directory there ends, whether with success or failure, within ANSWER_MS.
 * The child process costs a tenth of the start of four workers. */
static int check_answers(int at, const char *parent, struct dd_err *err)
{
    char name[40];
    int ends[2];
    if (scratch_random_name(name, sizeof(name)) < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot examine the temporary directory '%s': %m", parent);
    pid_t child = fork();
    if (child == 0)
        try_directory(at, name, ends[1]);
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN}; /* readable when the child exits */
    int n = child < 0 ? -1 : poll(&end, 1, ANSWER_MS);
    close(ends[0]);
    if (child > 0 && n != 0)
        (void)waitpid(child, NULL, 0);
    return n != 0 ? 0
                  : dd_err_set(err, -ETIMEDOUT,
                               "the file system of the temporary directory '%s' has not responded "
                               "within %d s",
                               parent, ANSWER_MS / 1000);
}

/* Create the directory; try another name if one exists. */
static int scratch_make(struct dd_scratch *s, int at, const char *parent, struct dd_err *err)
{
    char name[40];
    struct stat st;
    int rc = -EEXIST;
    for (int i = 0; i < NAME_TRIES && rc == -EEXIST; i++) {
        if (scratch_random_name(name, sizeof(name)) < 0)
            return dd_err_set(err, -EIO, "getrandom failed: %m");
        rc = mkdirat(at, name, 0700) < 0 ? -errno : 0;
    }
    if (rc < 0)
        return dd_err_set(err, rc, "cannot create a directory in '%s/': %s", parent, strerror(-rc));
    s->fd = open_private(at, name, &st);
    if (s->fd < 0)
        rc = dd_err_set(err, s->fd, "cannot use the new directory '%s/%s': %s", parent, name,
                        strerror(-s->fd));
    else if (asprintf(&s->path, "%s/%s", parent, name) < 0)
        rc = dd_err_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        (void)unlinkat(at, name, AT_REMOVEDIR);
    return rc;
}

/* Open the parent; return its path without symbolic links. */
static int open_parent(char **ret, const char *parent, struct dd_err *err)
{
    DD_AUTO(free) char *real = realpath(parent, NULL);
    DD_AUTO(fd) int at = real != NULL ? open_kept(real) : -errno;
    if (at == -EPERM)
        return dd_err_set(
            err, at,
            "other users can rename the temporary directory '%s' or files in it: the path has a "
            "directory of another user, or one that others can write to without the sticky bit",
            parent);
    if (at < 0)
        return dd_err_set(err, at, "cannot open the temporary directory '%s': %s", parent,
                          strerror(-at));
    int rc = is_local(at) ? 0 : check_answers(at, parent, err);
    if (rc < 0)
        return rc;
    *ret = DD_TAKE(real);
    return DD_TAKE_FD(at);
}

int dd_scratch_parent(char **ret, const char *parent, struct dd_err *err)
{
    DD_AUTO(fd) int at = open_parent(ret, parent, err);
    return at < 0 ? at : 0;
}

int dd_scratch_new(struct dd_scratch *ret, const char *parent, struct dd_err *err)
{
    DD_AUTO(scratch) struct dd_scratch s = DD_SCRATCH_NONE;
    DD_AUTO(free) char *real = NULL;
    DD_AUTO(fd) int at = open_parent(&real, parent, err);
    int rc = at < 0 ? at : scratch_make(&s, at, strcmp(real, "/") == 0 ? "" : real, err);
    if (rc < 0)
        return rc;
    *ret = s;
    s = DD_SCRATCH_NONE;
    return 0;
}

int dd_scratch_open(struct dd_scratch *ret, const char *path, struct dd_err *err)
{
    struct stat st;
    DD_AUTO(scratch) struct dd_scratch s = DD_SCRATCH_NONE;
    s.fd = open_private(AT_FDCWD, path, &st);
    if (s.fd < 0)
        return dd_err_set(err, s.fd,
                          s.fd == -EPERM
                              ? "cannot use '%s': expected a directory of this user with mode 0700"
                              : "cannot use the directory '%s': %s",
                          path, strerror(-s.fd));
    s.path = strdup(path);
    if (s.path == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *ret = s;
    s = DD_SCRATCH_NONE;
    return 0;
}

int dd_scratch_mkdir(const struct dd_scratch *s, const char *name, struct dd_err *err)
{
    return mkdirat(s->fd, name, 0700) == 0
               ? 0
               : dd_err_set(err, -errno, "cannot create the directory '%s/%s': %m", s->path, name);
}

void dd_scratch_own(const struct dd_scratch *s)
{
    char owner[DD_OWNER_MAX];
    if (s->path == NULL)
        return;
    dd_owner_text(owner);
    DD_AUTO(fd) int fd = openat(s->fd, OWNER, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        (void)dd_write_full(fd, owner, strlen(owner));
}

/* ---- sweeping ---- */

static bool is_abandoned(int fd)
{
    char owner[DD_OWNER_MAX];
    struct stat st;
    DD_AUTO(fd) int from = openat(fd, OWNER,
                                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return false;
    ssize_t n = read(from, owner, sizeof(owner) - 1);
    owner[n > 0 ? n : 0] = '\0';
    return dd_owner_is_gone(owner);
}

static void sweep_one(int at, const char *name)
{
    struct stat st;
    DD_AUTO(fd) int dir = open_private(at, name, &st);
    if (dir >= 0 && is_abandoned(dir))
        (void)remove_open(dir, name);
}

void dd_scratch_sweep(const struct dd_scratch *s)
{
    if (s->path == NULL)
        return;
    DD_AUTO(free) char *parent = strndup(s->path, (size_t)(strrchr(s->path, '/') - s->path));
    DIR *d = parent != NULL ? opendir(parent) : NULL;
    const struct dirent *e;
    for (int n = 0; d != NULL && n < LOOK_AT && (e = readdir(d)) != NULL; n++)
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0)
            sweep_one(dirfd(d), e->d_name);
    if (d != NULL)
        (void)closedir(d);
}

void dd_scratch_done(struct dd_scratch *s)
{
    free(s->path);
    if (s->fd >= 0)
        close(s->fd);
    *s = DD_SCRATCH_NONE;
}
