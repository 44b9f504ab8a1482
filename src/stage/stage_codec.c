#include "stage/stage_codec.h"

#include "base/cursor.h"

#include <errno.h>

enum { ENTRY_HEAD = 1 + 4 + 8 + 4 + 8 + 4 + 4 + 4, NSEC_MAX = 999999999 };
#define OFFSET_MAX (UINT64_C(1) << 62)

bool stage_path_ok(const char *path)
{
    int depth = 0;
    if (strlen(path) > STAGE_PATH_MAX)
        return false;
    for (const char *s = path;; s++) {
        const size_t n = strcspn(s, "/");
        if (n == 0 || n > STAGE_NAME_MAX || (n == 1 && s[0] == '.') ||
            (n == 2 && s[0] == '.' && s[1] == '.') || ++depth > STAGE_DEPTH_MAX)
            return false;
        s += n;
        if (*s == '\0')
            return true;
    }
}

enum stage_phase stage_phase_of(enum stage_kind kind)
{
    switch (kind) {
    case STAGE_DIR:
        return STAGE_DIRECTORIES;
    case STAGE_SYMLINK:
    case STAGE_HARDLINK:
        return STAGE_LINKS;
    case STAGE_META:
        return STAGE_TIMES;
    case STAGE_FILE:
    case STAGE_PIECE:
    case STAGE_KINDS:
    default:
        return STAGE_FILES;
    }
}

size_t stage_entry_size(size_t path, size_t target, size_t data)
{
    return ENTRY_HEAD + path + target + data;
}

int stage_entry_encode_head(struct dd_buf *out, const struct stage_entry *e)
{
    const size_t path = strlen(e->path);
    const size_t target = strlen(e->target);
    const size_t before = out->len;
    int rc = dd_wr_u8(out, (uint8_t)e->kind);
    rc = rc == 0 ? dd_wr_le(out, e->mode, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, (uint64_t)e->mtime, 8) : rc;
    rc = rc == 0 ? dd_wr_le(out, e->nsec, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, e->offset, 8) : rc;
    rc = rc == 0 ? dd_wr_le(out, path, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, target, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, e->len, 4) : rc;
    rc = rc == 0 ? dd_buf_append(out, e->path, path) : rc;
    rc = rc == 0 && target > 0 ? dd_buf_append(out, e->target, target) : rc;
    if (rc < 0)
        out->len = before;
    return rc;
}

int stage_entry_encode(struct dd_buf *out, const struct stage_entry *e)
{
    const size_t before = out->len;
    int rc = stage_entry_encode_head(out, e);
    rc = rc == 0 && e->len > 0 ? dd_buf_append(out, e->data, e->len) : rc;
    if (rc < 0)
        out->len = before;
    return rc;
}

/* Copy a text of n bytes, which must contain no NUL. */
static bool take_text(struct dd_rd *r, char out[STAGE_PATH_MAX + 1], uint32_t n)
{
    const unsigned char *p = n <= STAGE_PATH_MAX ? dd_rd_bytes(r, n) : NULL;
    if (p == NULL || memchr(p, '\0', n) != NULL)
        return false;
    memcpy(out, p, n);
    out[n] = '\0';
    return true;
}

static bool entry_ok(const struct stage_entry *e)
{
    const bool data = e->kind == STAGE_FILE || e->kind == STAGE_PIECE;
    const bool target = e->kind == STAGE_SYMLINK || e->kind == STAGE_HARDLINK;
    return e->mode <= 0777 && e->nsec <= NSEC_MAX && e->offset <= OFFSET_MAX &&
           (data || e->len == 0) && (target ? e->target[0] != '\0' : e->target[0] == '\0') &&
           stage_path_ok(e->path) && (e->kind != STAGE_HARDLINK || stage_path_ok(e->target));
}

int stage_entry_decode(struct stage_entry *ret, const unsigned char *p, size_t n, size_t *at)
{
    if (*at >= n) /* p is NULL if there is no entry */
        return 0;
    struct dd_rd r = dd_rd_of(p + *at, n - *at);
    const uint8_t kind = dd_rd_u8(&r);
    ret->kind = (enum stage_kind)kind;
    ret->mode = dd_rd_u32(&r);
    ret->mtime = dd_rd_i64(&r);
    ret->nsec = dd_rd_u32(&r);
    ret->offset = dd_rd_u64(&r);
    const uint32_t path = dd_rd_u32(&r);
    const uint32_t target = dd_rd_u32(&r);
    ret->len = dd_rd_u32(&r);
    if (r.failed || kind == 0 || kind >= STAGE_KINDS || !take_text(&r, ret->path, path) ||
        !take_text(&r, ret->target, target))
        return -EPROTO;
    ret->data = dd_rd_bytes(&r, ret->len);
    if (ret->data == NULL || !entry_ok(ret))
        return -EPROTO;
    *at = n - dd_rd_left(&r);
    return 1;
}

void stage_printable(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c != '\0'; c++) {
        const bool c1 = c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0; /* in UTF-8 */
        if (*c < ' ' || *c == 127 || c1)
            *c = '?';
        if (c1)
            *++c = '?';
    }
}

/* ---- frames ---- */

int stage_frame_encode(struct dd_buf *out, const struct stage_frame *f)
{
    int rc = dd_wr_u8(out, (uint8_t)f->type);
    if (rc == 0 && f->type == STAGE_HEAD) {
        rc = dd_wr_le(out, f->bytes, 8);
        rc = rc == 0 ? dd_wr_le(out, f->entries, 8) : rc;
        rc = rc == 0 ? dd_buf_append(out, f->digest, STAGE_DIGEST) : rc;
    } else if (rc == 0 && f->type == STAGE_END) {
        rc = dd_wr_le(out, f->chunks, 4);
        rc = rc == 0 ? dd_buf_append(out, f->digest, STAGE_DIGEST) : rc;
    } else if (rc == 0 && f->type == STAGE_TALLY) {
        rc = dd_wr_le(out, f->tally.done, 4);
        rc = rc == 0 ? dd_wr_le(out, f->tally.lag, 4) : rc;
        rc = rc == 0 ? dd_wr_le(out, f->tally.slowest, 4) : rc;
    } else if (rc == 0) {
        rc = dd_wr_le(out, f->seq, 4);
    }
    if (rc < 0 || f->type != STAGE_CHUNK)
        return rc;
    rc = dd_wr_u8(out, (uint8_t)f->phase);
    rc = rc == 0 ? dd_wr_le(out, f->raw, 4) : rc;
    return rc == 0 ? dd_buf_append(out, f->data, f->len) : rc;
}

static bool decode_chunk(struct stage_frame *ret, struct dd_rd *r)
{
    const uint8_t phase = dd_rd_u8(r);
    ret->raw = dd_rd_u32(r);
    ret->len = dd_rd_left(r);
    ret->data = dd_rd_bytes(r, ret->len);
    ret->phase = (enum stage_phase)phase;
    return !r->failed && phase < STAGE_PHASES && ret->raw > 0 && ret->raw <= STAGE_RAW_MAX &&
           ret->len > 0 && ret->seq < STAGE_CHUNKS_MAX;
}

static bool decode_tally(struct stage_tally *ret, struct dd_rd *r)
{
    ret->done = dd_rd_u32(r);
    ret->lag = dd_rd_u32(r);
    ret->slowest = dd_rd_u32(r);
    return ret->lag <= STAGE_WINDOW &&
           (ret->lag == 0 ? ret->slowest == STAGE_NOBODY : ret->slowest <= INT32_MAX);
}

int stage_frame_decode(struct stage_frame *ret, const void *p, size_t n)
{
    struct dd_rd r = dd_rd_of(p, n);
    *ret = (struct stage_frame){.type = (enum stage_frame_type)dd_rd_u8(&r)};
    const unsigned char *digest = NULL;
    bool ok = true;
    switch (ret->type) {
    case STAGE_HEAD:
        ret->bytes = dd_rd_u64(&r);
        ret->entries = dd_rd_u64(&r);
        digest = dd_rd_bytes(&r, STAGE_DIGEST);
        ok = digest != NULL && ret->bytes <= OFFSET_MAX && ret->entries <= OFFSET_MAX;
        if (ok)
            memcpy(ret->digest, digest, STAGE_DIGEST);
        break;
    case STAGE_CHUNK:
        ret->seq = dd_rd_u32(&r);
        ok = decode_chunk(ret, &r);
        break;
    case STAGE_END:
        ret->chunks = dd_rd_u32(&r);
        digest = dd_rd_bytes(&r, STAGE_DIGEST);
        ok = digest != NULL && ret->chunks <= STAGE_CHUNKS_MAX;
        if (ok)
            memcpy(ret->digest, digest, STAGE_DIGEST);
        break;
    case STAGE_ACK:
        ret->seq = dd_rd_u32(&r);
        break;
    case STAGE_TALLY:
        ok = decode_tally(&ret->tally, &r);
        break;
    case STAGE_FRAMES:
    default:
        ok = false;
    }
    return ok && !r.failed && dd_rd_left(&r) == 0 ? 0 : -EPROTO;
}
