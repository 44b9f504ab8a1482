#include "stage/stage_keep.h"

#include "base/auto.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_LONG = 4096, LOOK_AT = 256 };

#define OLD "old-" /* name prefix of a copy that is being removed */

void stage_keep_name(char name[STAGE_KEEP_NAME], const unsigned char digest[STAGE_DIGEST])
{
    for (size_t i = 0; i < STAGE_DIGEST; i++)
        (void)snprintf(name + 2 * i, 3, "%02x", digest[i]);
}

/* ---- the directory ---- */

int stage_keep_open(struct dd_scratch *ret, const char *path, bool create, struct dd_err *err)
{
    char kept[PATH_LONG];
    const char *slash = strrchr(path, '/');
    const int n = slash != NULL ? snprintf(kept, sizeof(kept), "%.*s/ddrun-kept-%u",
                                           (int)(slash - path), path, geteuid())
                                : -1;
    if (n < 0 || n >= (int)sizeof(kept))
        return dd_err_set(err, -ENAMETOOLONG, "the path '%.100s…' is too long", path);
    if (create && mkdir(kept, 0700) < 0 && errno != EEXIST)
        return dd_err_set(err, -errno, "cannot create the directory '%s': %m", kept);
    return dd_scratch_open(ret, kept, err);
}

/* True while the name refers to the open directory, and the directory is private. */
static bool keep_is_at(const struct dd_scratch *kept, const char *name, int fd)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && fstatat(kept->fd, name, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_uid == geteuid() &&
           (a.st_mode & 077) == 0;
}

int stage_keep_take(struct dd_scratch *ret, const struct dd_scratch *kept, const char *name)
{
    DD_AUTO(scratch) struct dd_scratch s = DD_SCRATCH_NONE;
    s.fd = openat(kept->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s.fd < 0 || flock(s.fd, LOCK_SH | LOCK_NB) < 0 || !keep_is_at(kept, name, s.fd))
        return -ENOENT;
    if (asprintf(&s.path, "%s/%s", kept->path, name) < 0)
        return -ENOMEM;
    (void)futimens(s.fd, NULL);
    *ret = s;
    s = DD_SCRATCH_NONE;
    return 0;
}

int stage_keep_store(const struct dd_scratch *kept, const struct dd_scratch *made, const char *from,
                     const char *name)
{
    if (renameat(made->fd, from, kept->fd, name) == 0)
        return 0;
    return errno == ENOTEMPTY ? -EEXIST : -errno;
}

/* ---- removing ---- */

struct keep_entry {
    char name[STAGE_KEEP_NAME];
    struct timespec used;
};

/* Remove a copy, unless a job has locked it. Rename the copy first, so that no job finds an
 * incomplete one. */
static void keep_remove(const struct dd_scratch *kept, const char *name)
{
    char old[STAGE_KEEP_NAME + sizeof(OLD)];
    DD_AUTO(fd) int fd = openat(kept->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    (void)snprintf(old, sizeof(old), OLD "%s", name);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || !keep_is_at(kept, name, fd))
        return;
    if (renameat(kept->fd, name, kept->fd, old) == 0)
        (void)dd_scratch_clear(kept, old);
}

static bool keep_is_later(const struct keep_entry *a, const struct keep_entry *b)
{
    return a->used.tv_sec != b->used.tv_sec ? a->used.tv_sec > b->used.tv_sec
                                            : a->used.tv_nsec > b->used.tv_nsec;
}

/* List the copies by the time of their last use, the latest first. Returns their number. */
static int keep_list(const struct dd_scratch *kept, struct keep_entry *v)
{
    struct stat st;
    int n = 0;
    const struct dirent *e;
    const int fd = openat(kept->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    while (d != NULL && n < LOOK_AT && (e = readdir(d)) != NULL) {
        if (strncmp(e->d_name, OLD, strlen(OLD)) == 0)
            (void)dd_scratch_clear(kept, e->d_name); /* the removal of this copy was interrupted */
        if (strlen(e->d_name) != STAGE_KEEP_NAME - 1 ||
            fstatat(kept->fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        struct keep_entry new = {.used = st.st_mtim};
        int at = n++;
        memcpy(new.name, e->d_name, STAGE_KEEP_NAME);
        for (; at > 0 && keep_is_later(&new, &v[at - 1]); at--)
            v[at] = v[at - 1];
        v[at] = new;
    }
    if (d != NULL)
        (void)closedir(d);
    else if (fd >= 0)
        close(fd);
    return n;
}

void stage_keep_prune(const struct dd_scratch *kept, int most)
{
    struct keep_entry v[LOOK_AT];
    const int n = keep_list(kept, v);
    for (int i = most; i < n; i++)
        keep_remove(kept, v[i].name);
}
