#include "stage/stage_walk.h"

#include "base/auto.h"
#include "base/io.h"
#include "stage/stage_image.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#pragma GCC diagnostic ignored "-Wimplicit-fallthrough" /* clang: in uthash's HASH_JEN */

enum {
    BLOCK = 4096,
    ITEMS_MAX = 64 << 20,
    THREADS = 16,      /* on a slow file system, where most threads wait for the server */
    SLOW_NS = 2000000, /* reading a directory for longer indicates a slow file system */
};

/* The first name of a file with several names. */
struct inode {
    UT_hash_handle hh;
    struct {
        dev_t dev;
        ino_t ino;
    } id;
    size_t item;
};

struct walk_dir;

/* An entry of a directory; a special file has no kind. */
struct found {
    struct stage_item item;
    struct walk_dir *dir; /* contents of a directory; NULL: another kind */
    dev_t dev;
    ino_t ino;
    nlink_t links;
};

struct walk_dir {
    STAILQ_ENTRY(walk_dir) entry;
    struct stage_item item;
    bool gone; /* the directory has vanished since its name was read */
    struct found *found;
    size_t n, cap;
};
STAILQ_HEAD(walk_dirs, walk_dir);

/* Threads take directories and add those that they find. */
struct walk {
    struct stage_list *list;
    struct inode *inodes;
    const char *root; /* the directory to copy, for messages */
    int fd;           /* descriptor of the root */
    size_t prefix;    /* length of the number in the paths */

    pthread_mutex_t lock;
    pthread_cond_t change;
    struct walk_dirs waiting;
    unsigned busy; /* threads that may add directories */
    pthread_t threads[THREADS];
    int nthreads;
    int rc; /* the first failure, with its message in err */
    struct dd_err *err;
};

static const char *shown(const struct walk *w, const char *path)
{
    return path[w->prefix] == '/' ? path + w->prefix : "";
}

/* ---- one entry ---- */

static int read_fail(const struct walk *w, const char *path, int error, struct dd_err *err)
{
    (void)dd_err_set(err, -error, "--stage: cannot read '%s%s': %s", w->root, shown(w, path),
                     strerror(error));
    stage_printable(err->text);
    return -error;
}

static int refuse_long(const struct walk *w, const char *path, struct dd_err *err)
{
    if (strlen(path) > STAGE_PATH_MAX)
        (void)dd_err_set(err, -ENAMETOOLONG, "--stage: '%s%.200s…' is longer than %d bytes",
                         w->root, shown(w, path), STAGE_PATH_MAX);
    else
        (void)dd_err_set(err, -ENAMETOOLONG,
                         "--stage: '%s%.200s…' lies in more than %d directories", w->root,
                         shown(w, path), STAGE_DEPTH_MAX - 2);
    stage_printable(err->text);
    return -ENAMETOOLONG;
}

/* The user owns the copy: give the owner the read and execute permissions of all classes. */
static uint32_t mode_of_copy(const struct stat *st)
{
    const uint32_t m = st->st_mode & 0777;
    const uint32_t any = (m >> 6 | m >> 3 | m) & 05;
    return m | any << 6 | (S_ISDIR(st->st_mode) ? 0700 : 0);
}

static void take_file(struct found *f, const struct stat *st)
{
    struct stage_item *i = &f->item;
    i->kind = STAGE_FILE;
    i->mode = mode_of_copy(st);
    i->mtime = st->st_mtim;
    i->ctime = st->st_ctim;
    i->size = (uint64_t)st->st_size;
    i->may_vanish = st->st_nlink == 1;
    f->links = st->st_nlink;
    f->dev = st->st_dev;
    f->ino = st->st_ino;
}

static int take_symlink(struct stage_item *i, const struct stat *st, int at, const char *name)
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

/* With --link-mode=symlink, uv installs links to the files of packages in its cache, which other
 * nodes may lack: copy the files. Src: uv 0.13.9 */
static bool leads_to_cache(const struct found *f, int at, const char *name, struct stat *st)
{
    return strstr(f->item.path, "/site-packages/") != NULL &&
           strstr(f->item.target, "/archive-v0/") != NULL && fstatat(at, name, st, 0) == 0 &&
           S_ISREG(st->st_mode);
}

static int take_link(struct found *f, struct stat *st, int at, const char *name)
{
    const int rc = take_symlink(&f->item, st, at, name);
    if (rc < 0 || !leads_to_cache(f, at, name, st))
        return rc;
    free(DD_TAKE(f->item.target));
    take_file(f, st);
    f->links = 1; /* each link becomes a file */
    f->item.may_vanish = false;
    f->item.follow = true;
    return 0;
}

static void found_done(struct found *f)
{
    free(f->item.path);
    free(f->item.target);
}

static struct walk_dir *dir_new(const char *path)
{
    struct walk_dir *d = calloc(1, sizeof(*d));
    char *copy = strdup(path);
    if (d == NULL || copy == NULL) {
        free(d);
        free(copy);
        return NULL;
    }
    d->item = (struct stage_item){.kind = STAGE_DIR, .path = copy};
    return d;
}

static void dir_free(struct walk_dir *d)
{
    for (size_t i = 0; i < d->n; i++) {
        if (d->found[i].dir != NULL)
            dir_free(d->found[i].dir); /* at most STAGE_DEPTH_MAX levels */
        found_done(&d->found[i]);
    }
    free(d->found);
    free(d->item.path);
    free(d);
}

/* Take the attributes of an entry. A directory is not examined before it is opened. */
static int take_entry(struct found *f, int at, const struct dirent *e)
{
    struct stat st = {.st_mode = S_IFDIR};
    if (e->d_type != DT_DIR && fstatat(at, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return (f->dir = dir_new(f->item.path)) != NULL ? 0 : -ENOMEM;
    if (S_ISREG(st.st_mode))
        take_file(f, &st);
    return S_ISLNK(st.st_mode) ? take_link(f, &st, at, e->d_name) : 0;
}

/* ---- one directory ---- */

static struct found *dir_add(struct walk_dir *d, const char *name)
{
    if (d->n == d->cap) {
        const size_t cap = d->cap > 0 ? d->cap * 2 : 32;
        struct found *v = realloc(d->found, cap * sizeof(*v));
        if (v == NULL)
            return NULL;
        d->found = v;
        d->cap = cap;
    }
    struct found *f = &d->found[d->n];
    *f = (struct found){0};
    if (asprintf(&f->item.path, "%s/%s", d->item.path, name) < 0)
        return NULL;
    d->n++;
    return f;
}

static int read_names(const struct walk *w, struct walk_dir *d, DIR *names, struct dd_err *err)
{
    const struct dirent *e;
    while (errno = 0, (e = readdir(names)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (d->n >= ITEMS_MAX)
            return dd_err_set(err, -E2BIG, "--stage: '%s%s' has more than %d entries", w->root,
                              shown(w, d->item.path), ITEMS_MAX);
        struct found *f = dir_add(d, e->d_name);
        if (f == NULL)
            return read_fail(w, d->item.path, ENOMEM, err);
        const int rc = take_entry(f, dirfd(names), e);
        if (rc == -ENOENT) {
            found_done(f);
            d->n--;
        } else if (rc < 0) {
            return read_fail(w, f->item.path, -rc, err);
        } else if (!stage_path_ok(f->item.path)) {
            return refuse_long(w, f->item.path, err);
        }
    }
    return errno == 0 ? 0 : read_fail(w, d->item.path, errno, err);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct found *)a)->item.path, ((const struct found *)b)->item.path);
}

/* Read a directory, and sort it, so that the same directory always has the same digest. */
static int read_dir(const struct walk *w, struct walk_dir *d, struct dd_err *err)
{
    const char *below = shown(w, d->item.path);
    struct stat st;
    const int fd = openat(w->fd, *below == '/' ? below + 1 : ".",
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && *below != '\0') {
        d->gone = true;
        return 0;
    }
    DIR *names = fd >= 0 && fstat(fd, &st) == 0 ? fdopendir(fd) : NULL;
    if (names == NULL) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return read_fail(w, d->item.path, error, err);
    }
    d->item.mode = mode_of_copy(&st);
    d->item.mtime = st.st_mtim;
    const int rc = read_names(w, d, names, err);
    (void)closedir(names);
    if (d->n > 1)
        qsort(d->found, d->n, sizeof(*d->found), by_path);
    return rc;
}

/* ---- threads ---- */

/* Return the next directory; NULL: there will be no more. */
static struct walk_dir *walk_next(struct walk *w)
{
    while (w->rc == 0 && STAILQ_EMPTY(&w->waiting) && w->busy > 0)
        (void)pthread_cond_wait(&w->change, &w->lock);
    struct walk_dir *d = w->rc == 0 ? STAILQ_FIRST(&w->waiting) : NULL;
    if (d == NULL)
        return NULL;
    STAILQ_REMOVE_HEAD(&w->waiting, entry);
    w->busy++;
    return d;
}

static void walk_put(struct walk *w, struct walk_dir *d, int rc, const struct dd_err *err)
{
    w->busy--;
    for (size_t i = 0; i < d->n; i++)
        if (d->found[i].dir != NULL)
            STAILQ_INSERT_TAIL(&w->waiting, d->found[i].dir, entry);
    if (rc < 0 && w->rc == 0) {
        w->rc = rc;
        if (w->err != NULL)
            *w->err = *err;
    }
    (void)pthread_cond_broadcast(&w->change);
}

static void *walk_thread(void *arg);

/* Two threads suffice for a local file system. If further threads cannot be created, the listing
 * takes longer. */
static void walk_add_thread(struct walk *w, uint64_t took_ns)
{
    if (w->rc == 0 && !STAILQ_EMPTY(&w->waiting) &&
        w->nthreads < (took_ns > SLOW_NS ? THREADS : 1) &&
        pthread_create(&w->threads[w->nthreads], NULL, walk_thread, w) == 0)
        w->nthreads++;
}

static void *walk_thread(void *arg)
{
    struct walk *w = arg;
    struct walk_dir *d;
    (void)pthread_mutex_lock(&w->lock);
    while ((d = walk_next(w)) != NULL) {
        struct dd_err err = {0};
        (void)pthread_mutex_unlock(&w->lock);
        const uint64_t began = dd_now_ns();
        const int rc = read_dir(w, d, &err);
        const uint64_t took = dd_now_ns() - began;
        (void)pthread_mutex_lock(&w->lock);
        walk_put(w, d, rc, &err);
        walk_add_thread(w, took);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void walk_all(struct walk *w, struct walk_dir *top)
{
    STAILQ_INSERT_TAIL(&w->waiting, top, entry);
    (void)walk_thread(w);
    /* no thread adds another one once the caller has found nothing left, or a failure */
    for (int i = 0; i < w->nthreads; i++)
        (void)pthread_join(w->threads[i], NULL);
}

/* ---- the list ---- */

/* Append an item. Takes the texts of `from`. */
static struct stage_item *list_add(struct stage_list *l, struct stage_item *from)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap > 0 ? l->cap * 2 : 1024;
        struct stage_item *v = cap <= ITEMS_MAX ? realloc(l->items, cap * sizeof(*v)) : NULL;
        if (v == NULL)
            return NULL;
        l->items = v;
        l->cap = cap;
    }
    struct stage_item *i = &l->items[l->n++];
    *i = *from;
    from->path = from->target = NULL;
    l->bytes += BLOCK;
    return i;
}

/* Make another name of a known file a hard link. 1: done; 0: the first name; -ENOMEM. */
static int link_known(struct walk *w, const struct found *f, struct stage_item *i)
{
    struct inode *known = NULL;
    struct inode *made = calloc(1, sizeof(*made)); /* zeroed: the key has padding in some ABIs */
    if (made == NULL)
        return -ENOMEM;
    made->id.dev = f->dev;
    made->id.ino = f->ino;
    made->item = (size_t)(i - w->list->items);
    HASH_FIND(hh, w->inodes, &made->id, sizeof(made->id), known);
    if (known == NULL) {
        HASH_ADD(hh, w->inodes, id, sizeof(made->id), made);
        if (made->hh.tbl == NULL) { /* HASH_ADD ran out of memory */
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

static int list_found(struct walk *w, struct found *f)
{
    struct stage_list *l = w->list;
    if (f->item.kind != STAGE_FILE && f->item.kind != STAGE_SYMLINK) {
        if (l->skipped++ == 0)
            (void)snprintf(l->first_skipped, sizeof(l->first_skipped), "%s%s", w->root,
                           shown(w, f->item.path));
        return 0;
    }
    struct stage_item *i = list_add(l, &f->item);
    if (i == NULL)
        return -ENOMEM;
    const int known = f->links > 1 ? link_known(w, f, i) : 0;
    if (known == 0)
        l->bytes += i->size;
    return known < 0 ? known : 0;
}

static int list_dir(struct walk *w, struct walk_dir *d)
{
    if (d->gone)
        return 0;
    int rc = list_add(w->list, &d->item) != NULL ? 0 : -ENOMEM;
    for (size_t i = 0; i < d->n && rc == 0; i++)
        rc = d->found[i].dir != NULL ? list_dir(w, d->found[i].dir) : list_found(w, &d->found[i]);
    return rc;
}

static int walk_root(struct walk *w, const char *root)
{
    struct walk_dir *top = dir_new(root);
    if (top == NULL)
        return read_fail(w, root, ENOMEM, w->err);
    walk_all(w, top);
    int rc = w->rc;
    if (rc == 0 && (rc = list_dir(w, top)) < 0)
        (void)read_fail(w, root, -rc, w->err);
    dir_free(top);
    struct inode *i;
    struct inode *next;
    HASH_ITER(hh, w->inodes, i, next)
    {
        HASH_DEL(w->inodes, i);
        free(i);
    }
    return rc;
}

int stage_walk(struct stage_list *list, const char *path, int number, struct dd_err *err)
{
    char root[16];
    (void)snprintf(root, sizeof(root), "%d", number);
    DD_AUTO(fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct walk w = {.list = list, .root = path, .fd = fd, .prefix = strlen(root), .err = err};
    if (fd < 0 && errno == ENOTDIR)
        return dd_err_set(err, -ENOTDIR, "--stage: '%s' is not a directory", path);
    if (fd < 0)
        return read_fail(&w, root, errno, err);
    STAILQ_INIT(&w.waiting);
    (void)pthread_mutex_init(&w.lock, NULL);
    (void)pthread_cond_init(&w.change, NULL);
    return walk_root(&w, root);
}

int stage_walk_archive(struct stage_list *list, const char *path, int number, struct dd_err *err)
{
    struct stage_item item = {.kind = STAGE_FILE, .archive = true};
    struct stat st;
    if (stat(path, &st) < 0)
        return dd_err_set(err, -errno, "--stage: cannot read '%s': %m", path);
    if (asprintf(&item.path, "%d", number) < 0)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    item.mtime = st.st_mtim;
    item.ctime = st.st_ctim;
    item.size = (uint64_t)st.st_size;
    if (list_add(list, &item) == NULL) {
        free(item.path);
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    }
    list->bytes += (uint64_t)st.st_size;
    return 0;
}

static int walk_add(struct stage_list *list, struct stage_item *item, const char *path,
                    struct dd_err *err)
{
    if ((item->path = strdup(path)) != NULL && list_add(list, item) != NULL)
        return 0;
    free(item->path);
    return dd_err_set(err, -ENOMEM, "--stage: out of memory");
}

int stage_walk_image(struct stage_list *list, const char *path, int number, struct dd_err *err)
{
    char name[32];
    struct stat st;
    if (stat(path, &st) < 0)
        return dd_err_set(err, -errno, "--stage: cannot read '%s': %m", path);
    struct stage_item dir = {.kind = STAGE_DIR, .mode = 0700, .mtime = st.st_mtim};
    struct stage_item file = {.kind = STAGE_FILE,
                              .image = true,
                              .mode = mode_of_copy(&st),
                              .mtime = st.st_mtim,
                              .ctime = st.st_ctim,
                              .size = (uint64_t)st.st_size};
    (void)snprintf(name, sizeof(name), "%d", number);
    int rc = walk_add(list, &dir, name, err);
    (void)snprintf(name, sizeof(name), "%d/" STAGE_IMAGE, number);
    rc = rc == 0 ? walk_add(list, &file, name, err) : rc;
    list->bytes += (uint64_t)st.st_size;
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
