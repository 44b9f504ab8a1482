#include "stage/stage_unpack.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SHEBANG_MAX = 250 }; /* Src: BINPRM_BUF_SIZE is 256 since Linux 5.1 */

/* Open a path below root without openat2: component by component. */
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

/* Open the directory of path; *name is the last component. */
static int open_parent_of(int root, const char *path, const char **name)
{
    char parent[STAGE_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');
    *name = slash != NULL ? slash + 1 : path;
    if (slash == NULL)
        return fcntl(root, F_DUPFD_CLOEXEC, 0);
    (void)snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
    return open_below(root, parent, O_PATH | O_DIRECTORY, 0);
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

/* Where the first line of a script names an interpreter in a source, write the line with that of
 * the copy. *skip: bytes of the data that the line replaces. */
static int write_shebang(const struct stage_unpack_cfg *c, int fd, const struct stage_entry *e,
                         size_t *skip)
{
    char line[SHEBANG_MAX];
    *skip = 0;
    if (c->sources == NULL || e->len < 4 || memcmp(e->data, "#!", 2) != 0)
        return 0;
    const unsigned char *end = memchr(e->data, '\n', e->len);
    for (int i = 0; end != NULL && c->sources[i] != NULL; i++) {
        const size_t n = strlen(c->sources[i]);
        const unsigned char *at = e->data + 2 + (e->data[2] == ' ');
        if ((size_t)(end - at) <= n || memcmp(at, c->sources[i], n) != 0 || at[n] != '/')
            continue;
        const int len = snprintf(line, sizeof(line), "#!%s/%d%.*s\n", c->path, i,
                                 (int)(end - at - (ssize_t)n), (const char *)at + n);
        if (len >= (int)sizeof(line)) /* the kernel would cut it: better the source's interpreter */
            return 0;
        *skip = (size_t)(end + 1 - e->data);
        const int rc = write_at(fd, line, (size_t)len, 0);
        return rc < 0 ? rc : len;
    }
    return 0;
}

static int unpack_file(const struct stage_unpack_cfg *c, const struct stage_entry *e)
{
    size_t skip;
    const int fd_or_error = open_below(c->root, e->path, O_WRONLY | O_CREAT | O_EXCL, e->mode);
    if (fd_or_error < 0)
        return fd_or_error;
    DD_AUTO(fd) int fd = fd_or_error;
    int rc = write_shebang(c, fd, e, &skip);
    if (rc >= 0)
        rc = write_at(fd, e->data + skip, e->len - skip, (uint64_t)rc);
    return rc == 0 ? set_time(fd, e) : rc;
}

static int unpack_piece(const struct stage_unpack_cfg *c, const struct stage_entry *e)
{
    const int fd_or_error = open_below(c->root, e->path, O_WRONLY | O_CREAT, 0600);
    if (fd_or_error < 0)
        return fd_or_error;
    DD_AUTO(fd) int fd = fd_or_error;
    return write_at(fd, e->data, e->len, e->offset);
}

static int unpack_meta(const struct stage_unpack_cfg *c, const struct stage_entry *e)
{
    const int fd_or_error = open_below(c->root, e->path, O_RDONLY | O_NONBLOCK, 0);
    if (fd_or_error < 0)
        return fd_or_error;
    DD_AUTO(fd) int fd = fd_or_error;
    return set_meta(fd, e);
}

/* ---- links and directories ---- */

static int unpack_hardlink(const struct stage_unpack_cfg *c, const struct stage_entry *e)
{
    const char *name;
    const char *old_name;
    struct stat st;
    DD_AUTO(fd) int from = open_parent_of(c->root, e->target, &old_name);
    DD_AUTO(fd) int at = open_parent_of(c->root, e->path, &name);
    if (from < 0 || at < 0)
        return from < 0 ? from : at;
    if (fstatat(from, old_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EPROTO;
    return linkat(from, old_name, at, name, 0) < 0 ? -errno : 0;
}

static int unpack_name(const struct stage_unpack_cfg *c, const struct stage_entry *e)
{
    const char *name;
    DD_AUTO(fd) int at = open_parent_of(c->root, e->path, &name);
    if (at < 0)
        return at;
    if (e->kind == STAGE_DIR)
        return mkdirat(at, name, 0700) < 0 ? -errno : 0;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
                                      {.tv_sec = e->mtime, .tv_nsec = e->nsec}};
    return symlinkat(e->target, at, name) < 0 || utimensat(at, name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? -errno
               : 0;
}

static int unpack_entry(const struct stage_unpack_cfg *c, const struct stage_entry *e)
{
    switch (e->kind) {
    case STAGE_DIR:
    case STAGE_SYMLINK:
        return unpack_name(c, e);
    case STAGE_FILE:
        return unpack_file(c, e);
    case STAGE_PIECE:
        return unpack_piece(c, e);
    case STAGE_HARDLINK:
        return unpack_hardlink(c, e);
    case STAGE_META:
        return unpack_meta(c, e);
    case STAGE_KINDS:
    default:
        return -EPROTO;
    }
}

int stage_unpack(const struct stage_unpack_cfg *cfg, enum stage_phase phase,
                 const unsigned char *raw, size_t n, struct dd_err *err)
{
    struct stage_entry e;
    size_t at = 0;
    int rc;
    while ((rc = stage_entry_decode(&e, raw, n, &at)) > 0) {
        if (stage_phase_of(e.kind) != phase)
            rc = -EPROTO;
        else
            rc = unpack_entry(cfg, &e);
        if (rc < 0)
            break;
    }
    if (rc == -EPROTO)
        return dd_err_set(err, rc, "--stage: %s has received malformed data", cfg->node);
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "--stage: cannot write the copy on %s to '%s': %s",
                                cfg->node, cfg->path, strerror(-rc));
}
