#include "stage/stage_unpack.h"

#include "base/auto.h"
#include "base/io.h"
#include "stage/stage_venv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHEBANG_MAX = 250 }; /* Src: BINPRM_BUF_SIZE is 256 since Linux 5.1 */

/* Fallback for openat2(): open a path below root component by component. */
static int open_slowly(int root, const char *path, int flags, unsigned mode)
{
    char name[STAGE_NAME_MAX + 1];
    DD_AUTO(fd) int at = fcntl(root, F_DUPFD_CLOEXEC, 0);
    const char *s = path;
    for (const char *slash; at >= 0 && (slash = strchr(s, '/')) != NULL; s = slash + 1) {
        (void)snprintf(name, sizeof(name), "%.*s", (int)(slash - s), s);
        const int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = next;
    }
    const int fd = at >= 0 ? openat(at, s, flags | O_NOFOLLOW | O_CLOEXEC, mode) : -1;
    return fd >= 0 ? fd : -errno;
}

static int open_below(int root, const char *path, int flags, unsigned mode)
{
    const struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                                 .mode = (flags & O_CREAT) != 0 ? mode : 0,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                            RESOLVE_NO_MAGICLINKS};
    const long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd >= 0)
        return (int)fd;
    /* an old kernel, or a filter on system calls of a container */
    return errno == ENOSYS || errno == EPERM ? open_slowly(root, path, flags, mode) : -errno;
}

/* The directory of the previous entry, kept open: most entries of a chunk lie in the same one. */
struct parent {
    int fd; /* -1: none */
    size_t len;
    char path[STAGE_PATH_MAX + 1];
};

/* State of one call of stage_unpack(). */
struct unpacking {
    const struct stage_unpack_cfg *cfg;
    struct parent parent;
    struct stage_entry entry;
};

static void parent_done(struct parent *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* Make the directories of path, which an archive may omit, and open the last one. Other threads may
 * make the same directories. */
static int make_directories(int root, const char *path)
{
    char above[STAGE_PATH_MAX + 1];
    DD_AUTO(fd) int at = fcntl(root, F_DUPFD_CLOEXEC, 0);
    int fd = -ENOENT;
    for (const char *s = path; at >= 0; s++) {
        const size_t n = strcspn(s, "/");
        const size_t end = (size_t)(s - path) + n;
        memcpy(above, path, end);
        above[end] = '\0';
        if (mkdirat(at, above + (s - path), 0700) < 0 && errno != EEXIST)
            return -errno;
        fd = open_below(root, above, O_PATH | O_DIRECTORY, 0);
        s += n;
        if (*s == '\0' || fd < 0)
            return fd;
        close(at);
        at = fd;
    }
    return -EMFILE;
}

/* Open the directory of path, which the parent keeps open; *name is the last component. */
static int open_parent_of(const struct unpacking *u, struct parent *p, const char *path,
                          const char **name)
{
    const char *slash = strrchr(path, '/');
    const size_t len = slash != NULL ? (size_t)(slash - path) : 0;
    *name = slash != NULL ? slash + 1 : path;
    if (len == 0)
        return u->cfg->root;
    if (p->fd >= 0 && p->len == len && memcmp(p->path, path, len) == 0)
        return p->fd;
    parent_done(p);
    memcpy(p->path, path, len);
    p->path[len] = '\0';
    p->len = len;
    p->fd = open_below(u->cfg->root, p->path, O_PATH | O_DIRECTORY, 0);
    if (p->fd == -ENOENT)
        p->fd = make_directories(u->cfg->root, p->path);
    return p->fd;
}

static int open_in_parent(struct unpacking *u, int flags, unsigned mode)
{
    const char *name;
    const int at = open_parent_of(u, &u->parent, u->entry.path, &name);
    if (at < 0)
        return at;
    const int fd = openat(at, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    return fd >= 0 ? fd : -errno;
}

/* ---- files ---- */

static int write_at(int fd, const void *p, size_t n, uint64_t offset)
{
    const unsigned char *from = p;
    while (n > 0) {
        const ssize_t k = pwrite(fd, from, n, (off_t)offset);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        from += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return 0;
}

static int set_time(int fd, const struct stage_entry *e)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = e->mtime, .tv_nsec = e->nsec}};
    return futimens(fd, times) < 0 ? -errno : 0;
}

static int set_meta(int fd, const struct stage_entry *e)
{
    struct stat st;
    /* a directory that its owner cannot open could not be removed */
    const mode_t least = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) ? 0700 : 0;
    return fchmod(fd, e->mode | least) < 0 ? -errno : set_time(fd, e);
}

/* ---- paths that must lead to the copy where it cannot be mounted ---- */

/* Return the number of the source in which this path lies, or -1. */
static int source_of(const struct stage_unpack_cfg *c, const char *path, size_t len)
{
    for (int i = 0; c->sources != NULL && c->sources[i] != NULL; i++)
        if (dd_path_lies_in(path, len, c->sources[i]))
            return i;
    return -1;
}

/* Find the path of the interpreter in a script or in the pyvenv.cfg of a virtual environment. */
static bool find_interpreter(const struct stage_entry *e, size_t *at, size_t *len)
{
    const char *text = (const char *)e->data;
    const char *end = memchr(text, '\n', e->len);
    if (end != NULL && e->len > 3 && memcmp(text, "#!", 2) == 0) {
        *at = text[2] == ' ' ? 3 : 2;
        *len = (size_t)(end - text) - *at;
        return end > text + *at;
    }
    const char *slash = strrchr(e->path, '/');
    if (slash == NULL || strcmp(slash, "/pyvenv.cfg") != 0)
        return false;
    DD_AUTO(free) char *copy = strndup(text, e->len);
    const char *home = copy != NULL ? stage_venv_home(copy, len) : NULL;
    *at = home != NULL ? (size_t)(home - copy) : 0;
    return home != NULL;
}

static int write_data(const struct stage_unpack_cfg *c, int fd, const struct stage_entry *e)
{
    char there[STAGE_PATH_MAX + 1];
    size_t at = 0;
    size_t len = 0;
    const bool any = c->sources != NULL && e->len > 0 && find_interpreter(e, &at, &len);
    const int source = any ? source_of(c, (const char *)e->data + at, len) : -1;
    if (source < 0)
        return write_at(fd, e->data, e->len, 0);
    const size_t from = strlen(c->sources[source]);
    const size_t to = (size_t)snprintf(there, sizeof(there), "%s/%d", c->path, source);
    /* the kernel would truncate a longer first line: keep the source's interpreter */
    if (to >= sizeof(there) || (e->data[0] == '#' && at + len - from + to >= SHEBANG_MAX))
        return write_at(fd, e->data, e->len, 0);
    int rc = write_at(fd, e->data, at, 0);
    rc = rc == 0 ? write_at(fd, there, to, at) : rc;
    return rc == 0 ? write_at(fd, e->data + at + from, e->len - at - from, at + to) : rc;
}

static int unpack_file(struct unpacking *u)
{
    const struct stage_entry *e = &u->entry;
    const int fd_or_error = open_in_parent(u, O_WRONLY | O_CREAT | O_EXCL, e->mode);
    if (fd_or_error < 0)
        return fd_or_error;
    DD_AUTO(fd) int fd = fd_or_error;
    const int rc = write_data(u->cfg, fd, e);
    return rc == 0 ? set_time(fd, e) : rc;
}

static int unpack_piece(struct unpacking *u)
{
    const struct stage_entry *e = &u->entry;
    const int fd_or_error = open_in_parent(u, O_WRONLY | O_CREAT, 0600);
    if (fd_or_error < 0)
        return fd_or_error;
    DD_AUTO(fd) int fd = fd_or_error;
    return write_at(fd, e->data, e->len, e->offset);
}

/* Set mode and time of a directory or a long file. A file that vanished before it was read has no
 * copy. */
static int unpack_meta(struct unpacking *u)
{
    const int fd_or_error = open_in_parent(u, O_RDONLY | O_NONBLOCK, 0);
    if (fd_or_error < 0)
        return fd_or_error == -ENOENT ? 0 : fd_or_error;
    DD_AUTO(fd) int fd = fd_or_error;
    return set_meta(fd, &u->entry);
}

/* ---- links and directories ---- */

static int unpack_hardlink(struct unpacking *u)
{
    struct parent there = {.fd = -1};
    const char *name;
    const char *old_name;
    struct stat st;
    int rc = 0;
    const int from = open_parent_of(u, &there, u->entry.target, &old_name);
    const int at = open_parent_of(u, &u->parent, u->entry.path, &name);
    if (from < 0 || at < 0)
        rc = from < 0 ? from : at;
    else if (fstatat(from, old_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        rc = -errno;
    else if (!S_ISREG(st.st_mode))
        rc = -EPROTO;
    else if (linkat(from, old_name, at, name, 0) < 0)
        rc = -errno;
    parent_done(&there);
    return rc;
}

/* Make a directory, unless unpacking a file in it has made it. */
static int make_directory(int at, const char *name)
{
    struct stat st;
    if (mkdirat(at, name, 0700) == 0)
        return 0;
    const int rc = -errno;
    return rc == -EEXIST && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode)
               ? 0
               : rc;
}

static int unpack_symlink(const struct unpacking *u, int at, const char *name)
{
    const struct stage_entry *e = &u->entry;
    const struct stage_unpack_cfg *c = u->cfg;
    char there[STAGE_PATH_MAX + 1];
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = e->mtime, .tv_nsec = e->nsec}};
    const int source = source_of(c, e->target, strlen(e->target));
    const int n = source < 0 ? -1
                             : snprintf(there, sizeof(there), "%s/%d%s", c->path, source,
                                        e->target + strlen(c->sources[source]));
    const char *target = n > 0 && n < (int)sizeof(there) ? there : e->target;
    return symlinkat(target, at, name) < 0 || utimensat(at, name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? -errno
               : 0;
}

static int unpack_name(struct unpacking *u)
{
    const char *name;
    const int at = open_parent_of(u, &u->parent, u->entry.path, &name);
    if (at < 0)
        return at;
    return u->entry.kind == STAGE_DIR ? make_directory(at, name) : unpack_symlink(u, at, name);
}

static int unpack_entry(struct unpacking *u)
{
    switch (u->entry.kind) {
    case STAGE_DIR:
    case STAGE_SYMLINK:
        return unpack_name(u);
    case STAGE_FILE:
        return unpack_file(u);
    case STAGE_PIECE:
        return unpack_piece(u);
    case STAGE_HARDLINK:
        return unpack_hardlink(u);
    case STAGE_META:
        return unpack_meta(u);
    case STAGE_KINDS:
    default:
        return -EPROTO;
    }
}

static int unpack_all(struct unpacking *u, enum stage_phase phase, const unsigned char *raw,
                      size_t n)
{
    size_t at = 0;
    int rc;
    while ((rc = stage_entry_decode(&u->entry, raw, n, &at)) > 0) {
        if (stage_phase_of(u->entry.kind) != phase)
            rc = -EPROTO;
        else
            rc = unpack_entry(u);
        if (rc < 0)
            break;
    }
    return rc;
}

int stage_unpack(const struct stage_unpack_cfg *cfg, enum stage_phase phase,
                 const unsigned char *raw, size_t n, struct dd_err *err)
{
    struct unpacking *u = calloc(1, sizeof(*u));
    if (u == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    u->cfg = cfg;
    u->parent.fd = -1;
    const int rc = unpack_all(u, phase, raw, n);
    parent_done(&u->parent);
    free(u);
    if (rc == -EPROTO)
        return dd_err_set(err, rc, "--stage: %s has received malformed data", cfg->node);
    if (rc == -ENOSPC)
        return dd_err_tip(err,
                          dd_err_set(err, rc, "--stage: not enough space on %s: '%s' is full",
                                     cfg->node, cfg->path),
                          "choose another directory with --stage-dir");
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "--stage: cannot write the copy on %s to '%s': %s",
                                cfg->node, cfg->path, strerror(-rc));
}
