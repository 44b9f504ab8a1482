#include "stage/stage_walk.h"

#include "base/auto.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#pragma GCC diagnostic ignored "-Wimplicit-fallthrough" /* uthash's hash, as clang sees it */

enum { BLOCK = 4096, ITEMS_MAX = 64 << 20 };

/* The first name of a file with several. */
struct inode {
    UT_hash_handle hh;
    struct {
        dev_t dev;
        ino_t ino;
    } id;
    size_t item;
};

struct walk {
    struct stage_list *list;
    struct inode *inodes;
    const char *root; /* the directory to copy, for messages */
    size_t prefix;    /* length of the number in the paths */
    struct dd_err *err;
};

static const char *shown(const struct walk *w, const char *path)
{
    return path[w->prefix] == '/' ? path + w->prefix : "";
}

static int walk_fail(const struct walk *w, const char *path, int error)
{
    (void)dd_err_set(w->err, -error, "--stage: cannot read '%s%s': %s", w->root, shown(w, path),
                     strerror(error));
    stage_printable(w->err->text);
    return -error;
}

/* The user owns the copy and needs the permissions that any class had. */
static uint32_t mode_of_copy(const struct stat *st)
{
    const uint32_t m = st->st_mode & 0777;
    const uint32_t any = (m >> 6 | m >> 3 | m) & 05;
    return m | any << 6 | (S_ISDIR(st->st_mode) ? 0700 : 0);
}

static struct stage_item *add_item(struct walk *w, const char *path)
{
    struct stage_list *l = w->list;
    if (l->n == l->cap) {
        const size_t cap = l->cap > 0 ? l->cap * 2 : 1024;
        struct stage_item *v = cap <= ITEMS_MAX ? realloc(l->items, cap * sizeof(*v)) : NULL;
        if (v == NULL)
            return NULL;
        l->items = v;
        l->cap = cap;
    }
    struct stage_item *i = &l->items[l->n];
    *i = (struct stage_item){.path = strdup(path)};
    if (i->path == NULL)
        return NULL;
    l->n++;
    l->bytes += BLOCK;
    return i;
}

/* A further name of a file is a hard link. 1: it is; 0: it is not; -ENOMEM. */
static int link_known(struct walk *w, const struct stat *st, struct stage_item *i)
{
    struct inode *known = NULL;
    struct inode *made = calloc(1, sizeof(*made)); /* zeroed: the key has padding in some ABIs */
    if (made == NULL)
        return -ENOMEM;
    made->id.dev = st->st_dev;
    made->id.ino = st->st_ino;
    made->item = (size_t)(i - w->list->items);
    HASH_FIND(hh, w->inodes, &made->id, sizeof(made->id), known);
    if (known == NULL) {
        HASH_ADD(hh, w->inodes, id, sizeof(made->id), made);
        if (made->hh.tbl == NULL) { /* out of memory: it was not added */
            free(made);
            return -ENOMEM;
        }
        return 0;
    }
    free(made);
    i->kind = STAGE_HARDLINK;
    i->target = strdup(w->list->items[known->item].path);
    return i->target != NULL ? 1 : -ENOMEM;
}

static int add_file(struct walk *w, const struct stat *st, struct stage_item *i)
{
    i->kind = STAGE_FILE;
    i->mode = mode_of_copy(st);
    i->mtime = st->st_mtim;
    i->ctime = st->st_ctim;
    i->size = (uint64_t)st->st_size;
    i->may_vanish = st->st_nlink == 1;
    const int known = st->st_nlink > 1 ? link_known(w, st, i) : 0;
    if (known == 0)
        w->list->bytes += i->size;
    return known < 0 ? known : 0;
}

static int add_symlink(struct stage_item *i, const struct stat *st, int at, const char *name)
{
    char target[STAGE_PATH_MAX + 1];
    const ssize_t n = readlinkat(at, name, target, sizeof(target));
    if (n < 0 || n == (ssize_t)sizeof(target))
        return n < 0 ? -errno : -ENAMETOOLONG;
    i->kind = STAGE_SYMLINK;
    i->mtime = st->st_mtim;
    i->target = strndup(target, (size_t)n);
    return i->target != NULL ? 0 : -ENOMEM;
}

static int walk_directory(struct walk *w, int fd, const struct stat *st, const char *path);

static int walk_down(struct walk *w, int at, const char *name, const char *path)
{
    struct stat st;
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : walk_fail(w, path, errno);
    if (fstat(fd, &st) < 0) {
        const int error = errno;
        close(fd);
        return walk_fail(w, path, error);
    }
    return walk_directory(w, fd, &st, path);
}

static void skip_special(struct walk *w, const char *path)
{
    if (w->list->skipped++ == 0)
        (void)snprintf(w->list->first_skipped, sizeof(w->list->first_skipped), "%s%s", w->root,
                       shown(w, path));
}

static int walk_entry(struct walk *w, int at, const char *name, const char *path)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : walk_fail(w, path, errno);
    if (!stage_path_ok(path)) {
        (void)dd_err_set(w->err, -ENAMETOOLONG,
                         "--stage: '%s%.200s…' is too long or has more than %d directories",
                         w->root, shown(w, path), STAGE_DEPTH_MAX - 2);
        stage_printable(w->err->text);
        return -ENAMETOOLONG;
    }
    if (S_ISDIR(st.st_mode))
        return walk_down(w, at, name, path);
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
        skip_special(w, path);
        return 0;
    }
    struct stage_item *i = add_item(w, path);
    int rc = i == NULL             ? -ENOMEM
             : S_ISREG(st.st_mode) ? add_file(w, &st, i)
                                   : add_symlink(i, &st, at, name);
    return rc == 0 ? 0 : walk_fail(w, path, -rc);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *e)
{
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

/* Takes fd. Sorted, so that the same directory always has the same digest. */
static int walk_directory(struct walk *w, int fd_taken, const struct stat *st, const char *path)
{
    DD_AUTO(fd) int fd = fd_taken;
    struct dirent **names = NULL;
    struct stage_item *i = add_item(w, path);
    if (i == NULL)
        return walk_fail(w, path, ENOMEM);
    i->kind = STAGE_DIR;
    i->mode = mode_of_copy(st);
    i->mtime = st->st_mtim;
    const int n = scandirat(fd, ".", &names, no_dots, by_name);
    int rc = n < 0 ? walk_fail(w, path, errno) : 0;
    for (int k = 0; k < n; k++) {
        DD_AUTO(free) char *below = NULL;
        if (rc == 0 && asprintf(&below, "%s/%s", path, names[k]->d_name) < 0)
            rc = walk_fail(w, path, ENOMEM);
        if (rc == 0)
            rc = walk_entry(w, fd, names[k]->d_name, below);
        free(names[k]);
    }
    free(names);
    return rc;
}

int stage_walk(struct stage_list *list, const char *path, int number, struct dd_err *err)
{
    char root[16];
    struct stat st;
    (void)snprintf(root, sizeof(root), "%d", number);
    struct walk w = {.list = list, .root = path, .prefix = strlen(root), .err = err};
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR)
        return dd_err_set(err, -ENOTDIR, "--stage: '%s' is not a directory", path);
    if (fd < 0 || fstat(fd, &st) < 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return walk_fail(&w, root, error);
    }
    int rc = walk_directory(&w, fd, &st, root);
    struct inode *i;
    struct inode *next;
    HASH_ITER(hh, w.inodes, i, next)
    {
        HASH_DEL(w.inodes, i);
        free(i);
    }
    return rc;
}

int stage_list_digest(const struct stage_list *list, unsigned char out[STAGE_DIGEST])
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool ok = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;
    for (size_t k = 0; k < list->n && ok; k++) {
        const struct stage_item *i = &list->items[k];
        const char *target = i->target != NULL ? i->target : "";
        const uint64_t numbers[] = {(uint64_t)i->kind,
                                    i->mode,
                                    (uint64_t)i->mtime.tv_sec,
                                    (uint64_t)i->mtime.tv_nsec,
                                    (uint64_t)i->ctime.tv_sec,
                                    (uint64_t)i->ctime.tv_nsec,
                                    i->size,
                                    strlen(i->path),
                                    strlen(target)};
        ok = EVP_DigestUpdate(md, numbers, sizeof(numbers)) == 1 &&
             EVP_DigestUpdate(md, i->path, strlen(i->path)) == 1 &&
             EVP_DigestUpdate(md, target, strlen(target)) == 1;
    }
    ok = ok && EVP_DigestFinal_ex(md, out, NULL) == 1;
    EVP_MD_CTX_free(md);
    return ok ? 0 : -EIO;
}

void stage_list_done(struct stage_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->items[i].path);
        free(list->items[i].target);
    }
    free(list->items);
    *list = (struct stage_list){0};
}
