#include "stage/stage_pack.h"

#include "base/auto.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 512 << 10 };

struct pack {
    const struct stage_pack_cfg *cfg;
    struct dd_buf raw; /* the chunk in the making */
    enum stage_phase phase;
    struct stage_entry entry;
    unsigned char *data; /* [PIECE] */
    int root;            /* descriptor of the source in use; -1: none */
    int number;          /* of that source */
    struct dd_err *err;
};

static const char *in_source(const char *path)
{
    const char *slash = strchr(path, '/');
    return slash != NULL ? slash + 1 : ".";
}

static int pack_fail(const struct pack *p, const struct stage_item *i, const char *why)
{
    (void)dd_err_set(p->err, -EIO, "--stage: cannot copy '%s/%s': %s", p->cfg->sources[p->number],
                     in_source(i->path), why);
    stage_printable(p->err->text);
    return -EIO;
}

static int flush(struct pack *p)
{
    if (p->raw.len == 0)
        return 0;
    struct dd_buf full = p->raw;
    p->raw = DD_BUF_INIT(STAGE_RAW_MAX);
    return p->cfg->emit(p->cfg->arg, p->phase, &full);
}

static int put(struct pack *p, const struct stage_item *i)
{
    struct stage_entry *e = &p->entry;
    const char *target = i->target != NULL ? i->target : "";
    const enum stage_phase phase = stage_phase_of(e->kind);
    (void)snprintf(e->path, sizeof(e->path), "%s", i->path);
    (void)snprintf(e->target, sizeof(e->target), "%s", target);
    e->mode = i->mode;
    e->mtime = i->mtime.tv_sec;
    e->nsec = (uint32_t)i->mtime.tv_nsec;
    const size_t size = stage_entry_size(strlen(e->path), strlen(e->target), e->len);
    int rc = 0;
    if (phase != p->phase || p->raw.len + size > STAGE_RAW_MAX)
        rc = flush(p);
    p->phase = phase;
    if (rc == 0 && (rc = stage_entry_encode(&p->raw, e)) < 0)
        rc = dd_err_set(p->err, rc, "--stage: out of memory");
    return rc;
}

static int put_plain(struct pack *p, const struct stage_item *i, enum stage_kind kind)
{
    p->entry.kind = kind;
    p->entry.offset = 0;
    p->entry.len = 0;
    return put(p, i);
}

/* ---- files ---- */

static int use_source(struct pack *p, const struct stage_item *i)
{
    const int number = (int)strtol(i->path, NULL, 10);
    if (p->root >= 0 && number == p->number)
        return 0;
    if (p->root >= 0)
        close(p->root);
    p->number = number;
    p->root = open(p->cfg->sources[number], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->root >= 0 ? 0 : pack_fail(p, i, strerror(errno));
}

static bool is_unchanged(int fd, const struct stage_item *i)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == i->size &&
           st.st_mtim.tv_sec == i->mtime.tv_sec && st.st_mtim.tv_nsec == i->mtime.tv_nsec;
}

static int read_full(int fd, unsigned char *out, size_t n)
{
    size_t got = 0;
    while (got < n) {
        const ssize_t k = read(fd, out + got, n - got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -ESTALE;
        got += (size_t)k;
    }
    return 0;
}

static int pack_data(struct pack *p, int fd, const struct stage_item *i)
{
    const bool whole = i->size <= STAGE_WHOLE_MAX;
    uint64_t at = 0;
    do {
        const uint64_t left = i->size - at;
        const size_t n = left < PIECE ? (size_t)left : PIECE;
        int rc = read_full(fd, p->data, n);
        if (rc < 0)
            return pack_fail(p, i, rc == -ESTALE ? "it has changed meanwhile" : strerror(-rc));
        p->entry.kind = whole ? STAGE_FILE : STAGE_PIECE;
        p->entry.offset = at;
        p->entry.data = p->data;
        p->entry.len = n;
        if (whole && !is_unchanged(fd, i)) /* before it is sent */
            return pack_fail(p, i, "it has changed meanwhile");
        if ((rc = put(p, i)) < 0)
            return rc;
        at += n;
    } while (at < i->size);
    return whole || is_unchanged(fd, i) ? 0 : pack_fail(p, i, "it has changed meanwhile");
}

/* A file without further names may vanish: Python renames its temporary files. */
static int pack_file(struct pack *p, const struct stage_item *i)
{
    int rc = use_source(p, i);
    if (rc < 0)
        return rc;
    DD_AUTO(fd) int fd = openat(p->root, in_source(i->path),
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && i->may_vanish && i->size <= STAGE_WHOLE_MAX
                   ? 0
                   : pack_fail(p, i, strerror(errno));
    if (i->size > STAGE_WHOLE_MAX) { /* its pieces are sent before its end has been read */
        if (!is_unchanged(fd, i))
            return pack_fail(p, i, "it has changed meanwhile");
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    return pack_data(p, fd, i);
}

static int pack_item(struct pack *p, const struct stage_item *i, enum stage_phase phase)
{
    if (phase == STAGE_FILES)
        return i->kind == STAGE_FILE ? pack_file(p, i) : 0;
    if (phase == STAGE_TIMES)
        return i->kind == STAGE_DIR || (i->kind == STAGE_FILE && i->size > STAGE_WHOLE_MAX)
                   ? put_plain(p, i, STAGE_META)
                   : 0;
    return stage_phase_of(i->kind) == phase ? put_plain(p, i, i->kind) : 0;
}

int stage_pack(const struct stage_pack_cfg *cfg, struct dd_err *err)
{
    struct pack *p = calloc(1, sizeof(*p));
    unsigned char *data = malloc(PIECE);
    int rc = p == NULL || data == NULL ? dd_err_set(err, -ENOMEM, "--stage: out of memory") : 0;
    if (rc == 0)
        *p = (struct pack){
            .cfg = cfg, .raw = DD_BUF_INIT(STAGE_RAW_MAX), .data = data, .root = -1, .err = err};
    for (int phase = 0; phase < STAGE_PHASES && rc == 0; phase++)
        for (size_t i = 0; i < cfg->list->n && rc == 0; i++)
            rc = pack_item(p, &cfg->list->items[i], (enum stage_phase)phase);
    if (rc == 0)
        rc = flush(p);
    if (p != NULL && p->root >= 0)
        close(p->root);
    if (p != NULL)
        dd_buf_done(&p->raw);
    free(data);
    free(p);
    return rc;
}
