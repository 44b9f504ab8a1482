#include "stage/collect_codec.h"

#include "base/cursor.h"

#include <errno.h>
#include <string.h>

enum { NSEC_MAX = 999999999 };
#define SIZE_LIMIT (UINT64_C(1) << 62)

bool collect_folder_ok(const char *name)
{
    const size_t n = strlen(name);
    if (n > STAGE_NAME_MAX || strchr(name, '/') != NULL || !stage_path_ok(name))
        return false;
    for (const char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return false;
    return true;
}

static bool has_text(enum collect_type type)
{
    return type == COLLECT_HELLO || type == COLLECT_OFFER || type == COLLECT_ANSWER;
}

int collect_frame_encode(struct dd_buf *out, const struct collect_frame *f)
{
    int rc = dd_wr_u8(out, (uint8_t)f->type);
    rc = rc == 0 ? dd_wr_u8(out, (uint8_t)f->verdict) : rc;
    rc = rc == 0 ? dd_wr_le(out, f->number, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, f->mode, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, (uint64_t)f->mtime, 8) : rc;
    rc = rc == 0 ? dd_wr_le(out, f->nsec, 4) : rc;
    rc = rc == 0 ? dd_wr_le(out, f->size, 8) : rc;
    if (rc == 0 && has_text(f->type) && f->text[0] != '\0')
        rc = dd_buf_append(out, f->text, strlen(f->text));
    if (rc == 0 && f->type == COLLECT_PIECE)
        rc = dd_buf_append(out, f->data, f->len);
    return rc;
}

static bool take_rest(struct collect_frame *ret, struct dd_rd *r)
{
    const size_t n = dd_rd_left(r);
    if (ret->type == COLLECT_PIECE) {
        ret->len = n;
        ret->data = dd_rd_bytes(r, n);
        return ret->data != NULL && n > 0;
    }
    if (!has_text(ret->type))
        return n == 0;
    const unsigned char *p = n <= STAGE_PATH_MAX ? dd_rd_bytes(r, n) : NULL;
    if (p == NULL || memchr(p, '\0', n) != NULL)
        return false;
    memcpy(ret->text, p, n);
    ret->text[n] = '\0';
    return true;
}

static bool collect_frame_ok(const struct collect_frame *f)
{
    if (f->mode > 0777 || f->nsec > NSEC_MAX || (f->size > SIZE_LIMIT && f->type != COLLECT_BYE))
        return false;
    switch (f->type) {
    case COLLECT_HELLO:
        return collect_folder_ok(f->text);
    case COLLECT_OFFER:
        return f->verdict <= COLLECT_CACHE && f->number > 0 && stage_path_ok(f->text);
    case COLLECT_PIECE:
        return f->size > 0 && f->size <= COLLECT_PIECE_MAX;
    case COLLECT_ANSWER:
        return f->verdict < COLLECT_VERDICTS;
    case COLLECT_COMMIT:
    case COLLECT_DROP:
    case COLLECT_BYE:
    case COLLECT_TAKEN:
        return true;
    case COLLECT_TYPES:
    default:
        return false;
    }
}

int collect_frame_decode(struct collect_frame *ret, const void *p, size_t n)
{
    struct dd_rd r = dd_rd_of(p, n);
    ret->type = (enum collect_type)dd_rd_u8(&r);
    ret->verdict = dd_rd_u8(&r);
    ret->number = dd_rd_u32(&r);
    ret->mode = dd_rd_u32(&r);
    ret->mtime = dd_rd_i64(&r);
    ret->nsec = dd_rd_u32(&r);
    ret->size = dd_rd_u64(&r);
    ret->data = NULL;
    ret->len = 0;
    ret->text[0] = '\0';
    if (r.failed || !take_rest(ret, &r))
        return -EPROTO;
    return collect_frame_ok(ret) ? 0 : -EPROTO;
}
