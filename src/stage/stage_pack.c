#include "stage/stage_pack.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE = STAGE_RAW_MAX - (STAGE_PATH_MAX + 100), /* bytes of a long file; fills a chunk */
    HELD_MAX = STAGE_WINDOW,                        /* long files that are being read */
};

/* A long file of which pieces have been planned and not read. All threads that read the file share
 * one descriptor. */
struct held {
    size_t item;
    uint64_t left; /* bytes that are not read yet; 0: this entry is unused */
    int fd;        /* -1: not opened yet */
    bool vanished; /* no piece is read, even if there is a new file with its name */
};

struct stage_pack {
    struct stage_pack_cfg cfg;
    int *roots; /* descriptors of the sources; -1: not open */
    int nroots;

    enum stage_phase phase; /* of the part that is planned next */
    size_t next;            /* first item of that part */
    uint64_t offset;        /* offset of that part in the item */

    pthread_mutex_t lock; /* protects held */
    struct held held[HELD_MAX];
};

/* State of one thread while it reads one part. */
struct reading {
    struct stage_pack *pack;
    struct dd_buf *raw; /* has space for STAGE_RAW_MAX bytes */
    struct stage_entry entry;
    struct dd_err *err;
};

/* ---- plan ---- */

static bool is_long(const struct stage_item *i)
{
    return i->kind == STAGE_FILE && i->size > STAGE_WHOLE_MAX;
}

static bool belongs(const struct stage_item *i, enum stage_phase phase)
{
    if (i->archive)
        return false;
    return phase == STAGE_TIMES ? i->kind == STAGE_DIR || is_long(i)
                                : stage_phase_of(i->kind) == phase;
}

static size_t size_of(const struct stage_item *i, enum stage_phase phase)
{
    return stage_entry_size(strlen(i->path), i->target != NULL ? strlen(i->target) : 0,
                            phase == STAGE_FILES ? (size_t)i->size : 0);
}

static void plan_piece(struct stage_pack *p, struct stage_part *ret)
{
    const struct stage_item *i = &p->cfg.list->items[p->next];
    const uint64_t left = i->size - p->offset;
    *ret = (struct stage_part){.phase = STAGE_FILES,
                               .from = p->next,
                               .to = p->next + 1,
                               .offset = p->offset,
                               .len = left < PIECE ? (size_t)left : PIECE};
    p->offset += ret->len;
    if (p->offset == i->size) {
        p->next++;
        p->offset = 0;
    }
}

/* Plan whole items until the chunk is full or a long file follows. False: no item is planned. */
static bool plan_items(struct stage_pack *p, struct stage_part *ret)
{
    const struct stage_list *l = p->cfg.list;
    size_t size = 0;
    *ret = (struct stage_part){.phase = p->phase, .from = p->next};
    for (; p->next < l->n; p->next++) {
        const struct stage_item *i = &l->items[p->next];
        if (!belongs(i, p->phase))
            continue;
        const size_t more = p->phase == STAGE_FILES && is_long(i) ? STAGE_RAW_MAX + 1
                                                                  : size_of(i, p->phase);
        if (size + more > STAGE_RAW_MAX)
            break;
        size += more;
    }
    ret->to = p->next;
    return size > 0;
}

bool stage_pack_next(struct stage_pack *p, struct stage_part *ret)
{
    for (; p->phase < STAGE_PHASES; p->phase++, p->next = 0) {
        if (plan_items(p, ret))
            return true;
        if (p->next < p->cfg.list->n) {
            plan_piece(p, ret);
            return true;
        }
    }
    return false;
}

/* ---- files ---- */

static const char *in_source(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash != NULL ? slash + 1 : ".";
}

static int number_of(const struct stage_item *i)
{
    return (int)strtol(i->path, NULL, 10);
}

static int pack_fail(const struct reading *r, const struct stage_item *i, const char *why)
{
    (void)dd_err_set(r->err, -EIO, "--stage: cannot copy '%s%s%s': %s",
                     r->pack->cfg.sources[number_of(i)], i->image ? "" : "/",
                     i->image ? "" : in_source(i->path), why);
    if (r->err != NULL)
        stage_printable(r->err->text);
    return -EIO;
}

static int put(struct reading *r, const struct stage_item *i, enum stage_kind kind)
{
    struct stage_entry *e = &r->entry;
    e->kind = kind;
    (void)snprintf(e->path, sizeof(e->path), "%s", i->path);
    (void)snprintf(e->target, sizeof(e->target), "%s", i->target != NULL ? i->target : "");
    e->mode = i->mode;
    e->mtime = i->mtime.tv_sec;
    e->nsec = (uint32_t)i->mtime.tv_nsec;
    const int rc = stage_entry_encode_head(r->raw, e);
    if (rc == 0)
        r->raw->len += e->len; /* read_data() has read the data to there */
    return rc == 0 ? 0 : dd_err_set(r->err, rc, "--stage: out of memory");
}

/* Do not query the access time: reading changes it, and the file server would be asked again. */
static bool is_unchanged(const struct stage_pack *p, int fd, const struct stage_item *i)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_MTIME, &st) < 0 ||
        !S_ISREG(st.stx_mode) || st.stx_size != i->size)
        return false;
    return p->cfg.list->cache || (st.stx_mtime.tv_sec == i->mtime.tv_sec &&
                                  (long)st.stx_mtime.tv_nsec == i->mtime.tv_nsec);
}

static int read_full(int fd, unsigned char *out, size_t n, uint64_t offset)
{
    size_t got = 0;
    while (got < n) {
        const ssize_t k = pread(fd, out + got, n - got, (off_t)(offset + got));
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -ESTALE;
        got += (size_t)k;
    }
    return 0;
}

static int open_file(const struct stage_pack *p, const struct stage_item *i)
{
    const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC |
                      (i->follow || i->image ? 0 : O_NOFOLLOW);
    const int root = p->roots[number_of(i)];
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", root);
    const int fd = i->image ? open(path, flags) : openat(root, in_source(i->path), flags);
    return fd >= 0 ? fd : -errno;
}

/* Read data of the entry that put() will encode to its place in the chunk. */
static int read_data(struct reading *r, int fd, const struct stage_item *i, size_t n)
{
    const size_t head = stage_entry_size(strlen(i->path), 0, 0);
    int rc = dd_buf_reserve(r->raw, head + n);
    if (rc < 0)
        return dd_err_set(r->err, rc, "--stage: out of memory");
    rc = read_full(fd, r->raw->data + r->raw->len + head, n, r->entry.offset);
    if (rc < 0)
        return pack_fail(r, i,
                         rc == -ESTALE ? "it changed while it was being copied" : strerror(-rc));
    if (!is_unchanged(r->pack, fd, i)) /* check before the data is sent */
        return pack_fail(r, i, "it changed while it was being copied");
    r->entry.len = n;
    return 0;
}

/* A file without further names may vanish: Python renames its temporary files, and other jobs trim
 * caches. */
static bool has_vanished(const struct stage_item *i, int rc)
{
    return rc == -ENOENT && i->may_vanish;
}

static int read_whole(struct reading *r, const struct stage_item *i)
{
    const int fd_or_error = open_file(r->pack, i);
    if (fd_or_error < 0)
        return has_vanished(i, fd_or_error) ? 0 : pack_fail(r, i, strerror(-fd_or_error));
    DD_AUTO(fd) int fd = fd_or_error;
    const int rc = read_data(r, fd, i, (size_t)i->size);
    return rc == 0 ? put(r, i, STAGE_FILE) : rc;
}

/* ---- long files ---- */

/* Return the entry of this item; NULL: all are used, although at most STAGE_WINDOW chunks are in
 * flight. */
static struct held *hold(struct stage_pack *p, size_t item)
{
    struct held *unused = NULL;
    for (int i = 0; i < HELD_MAX; i++) {
        if (p->held[i].left > 0 && p->held[i].item == item)
            return &p->held[i];
        if (p->held[i].left == 0)
            unused = &p->held[i];
    }
    if (unused != NULL)
        *unused = (struct held){.item = item, .left = p->cfg.list->items[item].size, .fd = -1};
    return unused;
}

/* Open a long file, unless another thread has. 0 or -errno; (*ret)->vanished: the file does not
 * exist. */
static int hold_open(struct reading *r, size_t item, struct held **ret)
{
    struct stage_pack *p = r->pack;
    const struct stage_item *i = &p->cfg.list->items[item];
    int rc = -EMFILE;
    (void)pthread_mutex_lock(&p->lock);
    struct held *h = *ret = hold(p, item);
    if (h != NULL && h->fd < 0 && !h->vanished) {
        h->fd = open_file(p, i);
        h->vanished = has_vanished(i, h->fd);
        if (h->fd >= 0)
            (void)posix_fadvise(h->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    if (h != NULL)
        rc = h->fd >= 0 || h->vanished ? 0 : h->fd;
    (void)pthread_mutex_unlock(&p->lock);
    return rc == 0 ? 0 : pack_fail(r, i, strerror(-rc));
}

static void hold_done(struct stage_pack *p, struct held *h, size_t n)
{
    (void)pthread_mutex_lock(&p->lock);
    h->left -= n;
    if (h->left == 0 && h->fd >= 0)
        close(h->fd);
    (void)pthread_mutex_unlock(&p->lock);
}

static int read_piece(struct reading *r, const struct stage_part *part)
{
    const struct stage_item *i = &r->pack->cfg.list->items[part->from];
    struct held *h;
    int rc = hold_open(r, part->from, &h);
    if (rc < 0)
        return rc;
    r->entry.offset = part->offset;
    if (!h->vanished) {
        rc = read_data(r, h->fd, i, part->len);
        if (rc == 0)
            rc = put(r, i, STAGE_PIECE);
    }
    hold_done(r->pack, h, part->len);
    return rc;
}

/* ---- parts ---- */

static int read_item(struct reading *r, const struct stage_item *i, enum stage_phase phase)
{
    if (!belongs(i, phase))
        return 0;
    r->entry.len = 0;
    if (phase == STAGE_FILES)
        return read_whole(r, i);
    return put(r, i, phase == STAGE_TIMES ? STAGE_META : i->kind);
}

int stage_pack_read(struct stage_pack *p, const struct stage_part *part, struct dd_buf *raw,
                    struct dd_err *err)
{
    struct reading *r = calloc(1, sizeof(*r));
    int rc = 0;
    *raw = DD_BUF_INIT(STAGE_RAW_MAX);
    if (r == NULL || dd_buf_reserve(raw, STAGE_RAW_MAX) < 0)
        rc = dd_err_set(err, -ENOMEM, "--stage: out of memory");
    else
        *r = (struct reading){.pack = p, .raw = raw, .err = err};
    if (rc == 0 && part->len > 0)
        rc = read_piece(r, part);
    for (size_t i = part->from; rc == 0 && part->len == 0 && i < part->to; i++)
        rc = read_item(r, &p->cfg.list->items[i], part->phase);
    free(r);
    return rc;
}

static int open_roots(struct stage_pack *p, struct dd_err *err)
{
    char *const *sources = p->cfg.sources;
    while (sources[p->nroots] != NULL)
        p->nroots++;
    p->roots = malloc(sizeof(*p->roots) * (size_t)(p->nroots + 1));
    if (p->roots == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    for (int i = 0; i < p->nroots; i++)
        p->roots[i] = -1;
    for (int i = 0; i < p->nroots; i++) {
        p->roots[i] = open(sources[i],
                           O_PATH | O_CLOEXEC); /* a directory, an archive or an image */
        if (p->roots[i] < 0)
            return dd_err_set(err, -errno, "--stage: cannot read '%s': %m", sources[i]);
    }
    return 0;
}

int stage_pack_new(struct stage_pack **ret, const struct stage_pack_cfg *cfg, struct dd_err *err)
{
    struct stage_pack *p = calloc(1, sizeof(*p));
    *ret = NULL;
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "--stage: out of memory");
    p->cfg = *cfg;
    (void)pthread_mutex_init(&p->lock, NULL);
    const int rc = open_roots(p, err);
    if (rc < 0) {
        stage_pack_free(p);
        return rc;
    }
    *ret = p;
    return 0;
}

void stage_pack_free(struct stage_pack *p)
{
    if (p == NULL)
        return;
    for (int i = 0; i < p->nroots && p->roots != NULL; i++)
        if (p->roots[i] >= 0)
            close(p->roots[i]);
    for (int i = 0; i < HELD_MAX; i++)
        if (p->held[i].left > 0 && p->held[i].fd >= 0)
            close(p->held[i].fd);
    free(p->roots);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}
