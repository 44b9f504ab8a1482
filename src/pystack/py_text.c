#include "pystack/py_text.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum {
    CHARS_MAX = 4096,
    LAST_CHAR = 0x10ffff,
};

/* The bit field after the hash of a string. */
struct text_state {
    unsigned kind; /* bytes per character */
    bool is_compact, is_ascii;
};

static struct text_state state_of(uint32_t bits)
{
    return (struct text_state){.kind = bits >> 2 & 7,
                               .is_compact = (bits >> 5 & 1) != 0,
                               .is_ascii = (bits >> 6 & 1) != 0};
}

static int check_type(struct py_memory *m, const struct py_layout *at, uint64_t addr, uint64_t type)
{
    uint64_t found;
    const int rc = py_memory_u64(m, addr + at->type, &found);
    return rc < 0 ? rc : found == type ? 0 : -EAGAIN;
}

static int put_char(struct dd_buf *out, uint32_t c)
{
    const unsigned char tail = 0x80 | (c & 0x3f);
    const unsigned char mid = 0x80 | (c >> 6 & 0x3f);
    const unsigned char high = 0x80 | (c >> 12 & 0x3f);
    if (c < ' ' || c == 0x7f || c > LAST_CHAR || (c >= 0xd800 && c <= 0xdfff))
        return dd_buf_append(out, "?", 1);
    if (c < 0x80)
        return dd_buf_append(out, &(unsigned char){(unsigned char)c}, 1);
    if (c < 0x800)
        return dd_buf_append(out, (unsigned char[]){(unsigned char)(0xc0 | c >> 6), tail}, 2);
    if (c < 0x10000)
        return dd_buf_append(out, (unsigned char[]){(unsigned char)(0xe0 | c >> 12), mid, tail}, 3);
    return dd_buf_append(out, (unsigned char[]){(unsigned char)(0xf0 | c >> 18), high, mid, tail},
                         4);
}

static int put_chars(struct dd_buf *out, const unsigned char *p, size_t n, unsigned kind)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        uint32_t c = 0;
        memcpy(&c, p + i * kind, kind);
        rc = put_char(out, c);
    }
    return rc;
}

int py_text_read(struct py_memory *m, const struct py_layout *at, const struct py_types *types,
                 uint64_t addr, struct dd_buf *out)
{
    unsigned char chars[4 * CHARS_MAX];
    uint64_t n;
    uint32_t bits;
    int rc = check_type(m, at, addr, types->text);
    if (rc == 0)
        rc = py_memory_u64(m, addr + at->text_length, &n);
    if (rc == 0)
        rc = py_memory_u32(m, addr + at->text_state, &bits);
    if (rc < 0)
        return rc;
    const struct text_state s = state_of(bits);
    if (!s.is_compact || (s.kind != 1 && s.kind != 2 && s.kind != 4) || n > PY_BYTES_MAX)
        return -EAGAIN;
    const uint64_t begin = addr + (s.is_ascii ? at->text_ascii : at->text_wide);
    const size_t skipped = n > CHARS_MAX ? (size_t)n - CHARS_MAX : 0; /* keep the end of a path */
    n -= skipped;
    rc = py_memory_get(m, begin + skipped * s.kind, chars, (size_t)n * s.kind);
    return rc == 0 ? put_chars(out, chars, (size_t)n, s.kind) : rc;
}

int py_bytes_read(struct py_memory *m, const struct py_layout *at, const struct py_types *types,
                  uint64_t addr, struct dd_buf *out)
{
    uint64_t n;
    int rc = check_type(m, at, addr, types->bytes);
    if (rc == 0)
        rc = py_memory_u64(m, addr + at->bytes_length, &n);
    if (rc == 0 && n >= PY_BYTES_MAX)
        rc = -EAGAIN;
    if (rc == 0)
        rc = dd_buf_reserve(out, (size_t)n);
    if (rc == 0 && n > 0)
        rc = py_memory_get(m, addr + at->bytes, out->data + out->len, (size_t)n);
    if (rc == 0)
        out->len += (size_t)n;
    return rc;
}
