#include "stage/compile_dir.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/scratch.h"
#include "stage/compile_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, ITEMS_MAX = 1 << 20, TAKE_TRIES = 10 };

/* ---- the shared directory ---- */

/* Check that no other user can write to the directory, whose files programs execute. Return the
 * descriptor. Takes fd_taken. */
static int check_private(int fd_taken, const char *dir, struct dd_err *err)
{
    struct stat st;
    DD_AUTO(fd) int fd = fd_taken;
    if (fstat(fd, &st) < 0)
        return dd_err_set(err, -errno, "cannot examine '%s': %m", dir);
    if (st.st_uid != geteuid())
        return dd_err_set(err, -EPERM, "'%s' belongs to another user", dir);
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return dd_err_set(err, -EPERM, "other users can write to '%s'", dir);
    if (faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) < 0)
        return dd_err_set(err, -errno, "cannot read and write '%s': %m", dir);
    return DD_TAKE_FD(fd);
}

static int make_directories(const char *dir)
{
    DD_AUTO(free) char *path = strdup(dir);
    if (path == NULL)
        return -ENOMEM;
    for (char *c = path + 1; *c != '\0'; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
            return -errno;
        *c = '/';
    }
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

int compile_dir_open(const struct compile_dir *c, struct dd_err *err)
{
    DD_AUTO(fd) int fd = dd_open_unplanted(c->dir, O_RDONLY | O_DIRECTORY, 0);
    int rc = fd < 0 ? fd : 0;
    if (rc == -ENOENT && (rc = make_directories(c->dir)) == 0) {
        fd = dd_open_unplanted(c->dir, O_RDONLY | O_DIRECTORY, 0);
        rc = fd < 0 ? fd : 0;
    }
    if (rc < 0)
        return dd_err_set(err, rc, "cannot use '%s': %s", c->dir, strerror(-rc));
    fd = check_private(DD_TAKE_FD(fd), c->dir, err);
    if (fd < 0 || c->kind == NULL)
        return DD_TAKE_FD(fd);
    if (mkdirat(fd, c->kind, 0700) < 0 && errno != EEXIST)
        return dd_err_set(err, -errno, "cannot create '%s/%s': %m", c->dir, c->kind);
    const int below = openat(fd, c->kind, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0)
        return dd_err_set(err, -errno, "cannot use '%s/%s': %m", c->dir, c->kind);
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%s", c->dir, c->kind);
    return check_private(below, path, err);
}

/* ---- trimming ---- */

static const char *in_cache(const struct stage_item *i)
{
    const char *slash = strchr(i->path, '/');
    return slash != NULL ? slash + 1 : "";
}

static void remove_file(int at, const char *path)
{
    char parent[STAGE_PATH_MAX + 1];
    (void)unlinkat(at, path, 0);
    (void)snprintf(parent, sizeof(parent), "%s", path);
    for (char *slash; (slash = strrchr(parent, '/')) != NULL;) {
        *slash = '\0';
        if (unlinkat(at, parent, AT_REMOVEDIR) < 0)
            return;
    }
}

/* Remove the last file of each unit first: while it exists, the unit is complete. */
static void remove_files(int at, const struct compile_cache_file *v, size_t n)
{
    for (int last = 1; last >= 0; last--)
        for (size_t i = 0; i < n; i++)
            if (v[i].fate == COMPILE_CACHE_REMOVE && compile_cache_is_last(v[i].path) == last)
                remove_file(at, v[i].path);
}

static int by_order(const void *a, const void *b)
{
    const struct stage_item *x = a;
    const struct stage_item *y = b;
    if (x->kind == STAGE_DIR || y->kind == STAGE_DIR)
        return x->kind != y->kind ? (x->kind == STAGE_DIR ? -1 : 1) : strcmp(x->path, y->path);
    return compile_cache_order(in_cache(x), in_cache(y));
}

static bool is_in(const char *path, const char *dir)
{
    const size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/* Keep the items whose fate is USE, and the directories that contain one. In the order of the walk,
 * a directory precedes its contents. */
static void keep_used(struct stage_list *l, const bool *used)
{
    const char *next = NULL;
    size_t at = l->n;
    l->bytes = 0;
    for (size_t k = l->n; k-- > 0;) {
        struct stage_item *i = &l->items[k];
        const bool dir = i->kind == STAGE_DIR;
        if (dir ? strchr(i->path, '/') == NULL || (next != NULL && is_in(next, i->path))
                : used[k]) {
            next = i->path;
            l->bytes += BLOCK + i->size;
            l->items[--at] = *i;
            continue;
        }
        free(i->path);
        free(i->target);
    }
    l->n -= at;
    memmove(l->items, l->items + at, l->n * sizeof(*l->items));
    qsort(l->items, l->n, sizeof(*l->items), by_order);
}

static int trim(struct stage_list *l, int at, uint64_t most)
{
    DD_AUTO(free) struct compile_cache_file *v = calloc(l->n + 1, sizeof(*v));
    DD_AUTO(free) bool *used = calloc(l->n + 1, sizeof(*used));
    size_t n = 0;
    if (v == NULL || used == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < l->n; i++)
        if (l->items[i].kind == STAGE_FILE && !compile_cache_is_temporary(in_cache(&l->items[i])))
            v[n++] = (struct compile_cache_file){.path = in_cache(&l->items[i]),
                                                 .size = l->items[i].size,
                                                 .used = l->items[i].mtime.tv_sec};
    const int rc = compile_cache_trim(v, n, most, time(NULL));
    if (rc < 0)
        return rc;
    remove_files(at, v, n);
    for (size_t i = 0, k = 0; i < l->n && k < n; i++)
        if (in_cache(&l->items[i]) == v[k].path)
            used[i] = v[k++].fate == COMPILE_CACHE_USE;
    keep_used(l, used);
    return 0;
}

/* ---- listing ---- */

/* True for files and directories that no other user can have written. */
static bool is_private(const struct stat *st)
{
    return (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) && st->st_uid == geteuid() &&
           (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static void skip(struct stage_list *l, const char *path)
{
    if (l->skipped++ == 0)
        (void)snprintf(l->first_skipped, sizeof(l->first_skipped), "%s", path);
}

static int add(struct stage_list *l, const char *path, const struct stat *st)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap > 0 ? l->cap * 2 : 256;
        struct stage_item *v = cap <= ITEMS_MAX ? realloc(l->items, cap * sizeof(*v)) : NULL;
        if (v == NULL)
            return cap <= ITEMS_MAX ? -ENOMEM : -E2BIG;
        l->items = v;
        l->cap = cap;
    }
    struct stage_item *i = &l->items[l->n];
    *i = (struct stage_item){.kind = S_ISDIR(st->st_mode) ? STAGE_DIR : STAGE_FILE,
                             .path = strdup(path),
                             .mode = (uint32_t)st->st_mode & 0777,
                             .mtime = st->st_mtim,
                             .ctime = st->st_ctim,
                             .size = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
                             .may_vanish = true}; /* another job may trim the directory */
    if (i->path == NULL)
        return -ENOMEM;
    i->mode |= S_ISDIR(st->st_mode) ? 0700 : 0400;
    l->n++;
    return 0;
}

static int list_directory(struct stage_list *l, int fd_taken, const char *path, int depth);

static int list_entry(struct stage_list *l, int at, const char *name, const char *path, int depth)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* removed meanwhile */
    if (!is_private(&st) || !stage_path_ok(path) || depth == STAGE_DEPTH_MAX) {
        skip(l, path);
        return 0;
    }
    const int rc = add(l, path, &st);
    if (rc < 0 || !S_ISDIR(st.st_mode))
        return rc;
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return list_directory(l, fd, path, depth + 1);
    skip(l, path);
    return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* List the entries of a directory, sorted, so that the files of a unit follow each other. Takes
 * fd_taken. */
static int list_directory(struct stage_list *l, int fd_taken, const char *path, int depth)
{
    DD_AUTO(fd) int fd = fd_taken;
    struct dirent **names = NULL;
    int rc = 0;
    const int n = scandirat(fd, ".", &names, no_dots, by_name);
    if (n < 0)
        skip(l, path);
    for (int k = 0; k < n; k++) {
        DD_AUTO(free) char *below = NULL;
        if (rc == 0 && asprintf(&below, "%s/%s", path, names[k]->d_name) < 0) {
            below = NULL;
            rc = -ENOMEM;
        }
        if (rc == 0)
            rc = list_entry(l, fd, names[k]->d_name, below, depth);
        free(names[k]);
    }
    free(names);
    return rc;
}

static int list_all(struct stage_list *l, int at)
{
    struct stat st;
    const int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        const int rc = -errno;
        if (fd >= 0)
            close(fd);
        return rc;
    }
    const int rc = add(l, COMPILE_DIR_CACHE, &st);
    if (rc == 0)
        return list_directory(l, fd, COMPILE_DIR_CACHE, 1);
    close(fd);
    return rc;
}

int compile_dir_list(struct stage_list *ret, const struct compile_dir *c,
                     char source[COMPILE_DIR_SOURCE], char warning[COMPILE_DIR_WARNING])
{
    struct dd_err err = {0};
    warning[0] = source[0] = '\0';
    ret->cache = true;
    int fd = compile_dir_open(c, &err); /* stays open: `source` refers to it */
    if (fd < 0) {
        (void)snprintf(warning, COMPILE_DIR_WARNING,
                       "%.400s: the job begins with empty caches, and new entries are not saved",
                       err.text);
        return fd == -ENOMEM ? fd : 0;
    }
    (void)snprintf(source, COMPILE_DIR_SOURCE, "/proc/self/fd/%d", fd);
    int rc = list_all(ret, fd);
    if (rc == 0)
        rc = trim(ret, fd, c->most);
    if (rc == 0 && ret->skipped > 0)
        (void)snprintf(warning, COMPILE_DIR_WARNING,
                       "left out %zu entr%s of '%.200s', the first is '%.300s': expected files and "
                       "directories that can be read, and that other users cannot write",
                       ret->skipped, ret->skipped == 1 ? "y" : "ies", c->dir,
                       ret->first_skipped + strlen(COMPILE_DIR_CACHE) + 1);
    return rc;
}

/* ---- the directory of a node ---- */

static int make_below(int at, const char *path)
{
    char part[256];
    for (const char *c = path;; c++) {
        if (*c != '/' && *c != '\0')
            continue;
        (void)snprintf(part, sizeof(part), "%.*s", (int)(c - path), path);
        if (mkdirat(at, part, 0700) < 0 && errno != EEXIST)
            return -errno;
        if (*c == '\0')
            return 0;
    }
}

/* Give the snapshot of a tool the name under which the tool finds it. */
static void name_snapshot(int at, const char *tool)
{
    char path[600];
    char name[256] = "";
    const int fd = openat(at, tool, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            (void)snprintf(name, sizeof(name), "%s", e->d_name);
    if (name[0] != '\0') {
        (void)snprintf(path, sizeof(path), "%s/" COMPILE_CACHE_COMPLETE, name);
        if (faccessat(dirfd(d), path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            (void)renameat(dirfd(d), name, dirfd(d), COMPILE_CACHE_NOW);
    }
    if (d != NULL)
        (void)closedir(d);
    else if (fd >= 0)
        close(fd);
}

int compile_dir_take(int at, const char *made)
{
    DD_AUTO(fd) int fd = openat(at, made, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    /* the copy has no entries: keep the present cache */
    if (unlinkat(fd, COMPILE_DIR_CACHE, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    /* try again: a tool may make the directory between two renames */
    for (int tries = 0; tries < TAKE_TRIES; tries++) {
        char early[16];
        if (renameat2(fd, COMPILE_DIR_CACHE, at, COMPILE_DIR_CACHE, RENAME_EXCHANGE) == 0)
            return 0;
        (void)snprintf(early, sizeof(early), "early%d", tries);
        if (errno != ENOENT && /* this file system or container cannot exchange directories */
            renameat(at, COMPILE_DIR_CACHE, fd, early) < 0 && errno != ENOENT)
            return -errno;
        if (renameat(fd, COMPILE_DIR_CACHE, at, COMPILE_DIR_CACHE) == 0)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
            return -errno;
    }
    return -EBUSY;
}

int compile_dir_arrange(int at, struct dd_err *err)
{
    int rc = mkdirat(at, COMPILE_DIR_CACHE, 0700) < 0 && errno != EEXIST ? -errno : 0;
    DD_AUTO(fd) int fd = openat(at, COMPILE_DIR_CACHE,
                                O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    rc = fd < 0 && rc == 0 ? -errno : rc;
    for (size_t i = 0; compile_cache_snapshots[i] != NULL && rc == 0; i++)
        name_snapshot(fd, compile_cache_snapshots[i]);
    for (size_t i = 0; compile_cache_vars[i].name != NULL && rc == 0; i++)
        if (compile_cache_vars[i].dir != NULL)
            rc = make_below(fd, compile_cache_vars[i].dir);
    DD_AUTO(fd) int mark = rc == 0 ? openat(at, COMPILE_DIR_MARK,
                                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                                   : -1;
    rc = mark < 0 && rc == 0 ? -errno : rc;
    return rc == 0 ? 0
                   : dd_err_set(err, rc, "cannot make the directories of the caches: %s",
                                strerror(-rc));
}
