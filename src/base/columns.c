#include "base/columns.h"

#include "base/utf8.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct range {
    uint32_t first, last;
};

/* Characters of two columns. Src: Unicode, EastAsianWidth.txt, W and F; gaps between emoji are
 * included. */
static const struct range wide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},
    {0x23f0, 0x23f0},   {0x23f3, 0x23f3},   {0x25fd, 0x25fe},   {0x2614, 0x2615},
    {0x2648, 0x2653},   {0x267f, 0x267f},   {0x2693, 0x2693},   {0x26a1, 0x26a1},
    {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},   {0x26ce, 0x26ce},
    {0x26d4, 0x26d4},   {0x26ea, 0x26ea},   {0x26f2, 0x26f3},   {0x26f5, 0x26f5},
    {0x26fa, 0x26fa},   {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},
    {0x2728, 0x2728},   {0x274c, 0x274c},   {0x274e, 0x274e},   {0x2753, 0x2755},
    {0x2757, 0x2757},   {0x2795, 0x2797},   {0x27b0, 0x27b0},   {0x27bf, 0x27bf},
    {0x2b1b, 0x2b1c},   {0x2b50, 0x2b50},   {0x2b55, 0x2b55},   {0x2e80, 0x303e},
    {0x3041, 0x4dbf},   {0x4e00, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},
    {0xf900, 0xfaff},   {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},   {0xff01, 0xff60},
    {0xffe0, 0xffe6},   {0x16fe0, 0x18cff}, {0x1aff0, 0x1b2ff}, {0x1f004, 0x1f004},
    {0x1f0cf, 0x1f0cf}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a}, {0x1f200, 0x1f64f},
    {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7ff}, {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff},
    {0x20000, 0x3fffd},
};

/* Characters without a width: combining marks, and those that change the direction of text. */
static const struct range omitted[] = {
    {0x00ad, 0x00ad}, {0x0300, 0x036f},   {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061c},
    {0x064b, 0x065f}, {0x070f, 0x070f},   {0x0e31, 0x0e31}, {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e},
    {0x180b, 0x180f}, {0x1ab0, 0x1aff},   {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x2028, 0x202e},
    {0x2060, 0x206f}, {0x20d0, 0x20ff},   {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xfeff, 0xfeff},
    {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
};

static bool is_among(uint32_t c, const struct range *v, size_t n)
{
    for (size_t i = 0; i < n && v[i].first <= c; i++)
        if (c <= v[i].last)
            return true;
    return false;
}

#define IS_AMONG(c, list) is_among(c, list, sizeof(list) / sizeof((list)[0]))

/* Decode the well-formed character of n bytes at p. */
static uint32_t code_point(const char *p, size_t n)
{
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t c = (unsigned char)p[0] & masks[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)p[i] & 0x3f);
    return c;
}

/* Return the length of the escape sequence at p, which begins with ESC. An unfinished one ends
 * before the next newline, or with the text. Src: ECMA-48 5.4, 5.6. */
static size_t escape_len(const char *p)
{
    size_t n = 1;
    if (p[n] == '[') {
        for (n++; p[n] >= 0x20 && p[n] < 0x40; n++)
            ;
        return p[n] >= 0x40 && p[n] < 0x7f ? n + 1 : n;
    }
    if (p[n] != '\0' && strchr("]PX^_", p[n]) != NULL) {
        while (p[n] != '\0' && p[n] != '\n' && p[n] != '\a' && p[n] != '\033')
            n++;
        return p[n] == '\a' ? n + 1 : p[n] == '\033' && p[n + 1] == '\\' ? n + 2 : n;
    }
    while (p[n] >= 0x20 && p[n] < 0x30)
        n++;
    return p[n] >= 0x30 && p[n] < 0x7f ? n + 1 : n;
}

/* The output for one character. */
struct shown {
    size_t len;     /* bytes of the text */
    const char *as; /* output */
    size_t n;       /* bytes of `as` */
    int columns;    /* width of `as` */
};

static struct shown show(const char *p, bool utf8)
{
    const unsigned char c = (unsigned char)*p;
    if (c == '\033')
        return (struct shown){.len = escape_len(p)};
    if (c == '\t')
        return (struct shown){1, " ", 1, 1};
    if (c < ' ' || c == 127)
        return (struct shown){1, "?", 1, 1};
    if (c < 127)
        return (struct shown){1, p, 1, 1};
    const size_t n = dd_utf8_len(p, strnlen(p, 4));
    if (n == 0)
        return (struct shown){1, "?", 1, 1};
    const uint32_t point = code_point(p, n);
    if (IS_AMONG(point, omitted))
        return (struct shown){.len = n};
    if (!utf8 || point < 0xa0)
        return (struct shown){n, "?", 1, 1};
    return (struct shown){n, p, n, IS_AMONG(point, wide) ? 2 : 1};
}

int dd_columns_put(struct dd_buf *out, const char **text, int width, bool utf8)
{
    int used = 0;
    const char *p = *text;
    while (*p != '\0' && *p != '\n') {
        struct shown s = show(p, utf8);
        if (s.columns > width && used == 0 && width > 0)
            s = (struct shown){s.len, "?", 1, 1}; /* a wide character in one column */
        if (s.columns > width - used)
            break;
        const int rc = s.n > 0 ? dd_buf_append(out, s.as, s.n) : 0;
        if (rc < 0)
            return rc;
        used += s.columns;
        p += s.len;
    }
    *text = p;
    return used;
}

int dd_columns_pad(struct dd_buf *out, const char *text, int width, bool utf8)
{
    int rc = dd_columns_put(out, &text, width, utf8);
    for (int used = rc; rc >= 0 && used < width; used++)
        rc = dd_buf_puts(out, " ");
    return rc < 0 ? rc : 0;
}

bool dd_columns_are_utf8(const char *lc_all, const char *lc_ctype, const char *lang)
{
    const char *v = lc_all != NULL && lc_all[0] != '\0'       ? lc_all
                    : lc_ctype != NULL && lc_ctype[0] != '\0' ? lc_ctype
                                                              : lang;
    return v != NULL && (strcasestr(v, "utf-8") != NULL || strcasestr(v, "utf8") != NULL);
}
