#include "worker/lines.h"

#include <string.h>

/* Return the index of the first \n or \r in p[from..n), or n. */
static size_t find_end(const unsigned char *p, size_t from, size_t n)
{
    const unsigned char *lf = from < n ? memchr(p + from, '\n', n - from) : NULL;
    size_t stop = lf == NULL ? n : (size_t)(lf - p);
    const unsigned char *cr = from < stop ? memchr(p + from, '\r', stop - from) : NULL;
    return cr == NULL ? stop : (size_t)(cr - p);
}

bool lines_next(struct lines *l, const unsigned char *p, size_t n, bool eof, struct line_piece *ret)
{
    if (n == 0)
        return false;
    if (l->after_cr && p[0] == '\n') {
        *l = (struct lines){0};
        *ret = (struct line_piece){.len = 1, .bare = true};
        return true;
    }
    size_t i = find_end(p, l->scanned, n);
    if (i == n && !eof && n < LINES_MAX) {
        l->scanned = n;
        return false;
    }
    struct line_piece piece = {.len = i + 1};
    if (i >= LINES_MAX)
        piece = (struct line_piece){.len = LINES_MAX, .cut = true};
    else if (i == n)
        piece = (struct line_piece){.len = n, .cut = true};
    else if (p[i] == '\r' && i + 1 < n && p[i + 1] == '\n')
        piece.len = i + 2;
    else
        piece.bare = p[i] == '\r' && i == 0;
    *l = (struct lines){.after_cr = !piece.cut && p[piece.len - 1] == '\r'};
    *ret = piece;
    return true;
}

size_t lines_whole(const unsigned char *p, size_t n)
{
    const unsigned char *lf = n > 0 ? memrchr(p, '\n', n) : NULL;
    size_t from = lf == NULL ? 0 : (size_t)(lf - p) + 1;
    const unsigned char *cr = from < n ? memrchr(p + from, '\r', n - from) : NULL;
    return cr == NULL ? from : (size_t)(cr - p) + 1;
}

void tail_add(struct tail *t, const unsigned char *p, size_t n)
{
    size_t most = t->most > 0 ? t->most : TAIL_BYTES;
    t->bytes.max = 2 * most;
    if (n > most) {
        p += n - most;
        n = most;
    }
    if (t->bytes.len + n > t->bytes.max)
        dd_buf_consume(&t->bytes, t->bytes.len + n - most);
    if (dd_buf_append(&t->bytes, p, n) < 0)
        dd_buf_clear(&t->bytes);
}

/* Return where the line that ends before `end` begins. */
static size_t line_start(const unsigned char *p, size_t from, size_t end)
{
    while (end > from && p[end - 1] != '\n')
        end--;
    return end;
}

/* Append a line without its end, in the version that a terminal shows last. */
static int add_line(struct dd_buf *out, const unsigned char *p, size_t n)
{
    while (n > 0 && p[n - 1] == '\r')
        n--;
    size_t from = n;
    while (from > 0 && p[from - 1] != '\r')
        from--;
    int rc = dd_buf_append(out, p + from, n - from);
    return rc < 0 ? rc : dd_buf_append(out, "\n", 1);
}

int tail_format(const struct tail *t, struct dd_buf *out)
{
    const unsigned char *p = t->bytes.data;
    size_t n = t->bytes.len;
    size_t first = n > TAIL_BYTES ? n - TAIL_BYTES : 0;
    if (n > first && p[n - 1] == '\n')
        n--;
    else if (n == first)
        return 0;
    size_t from = n;
    for (int i = 0; i < TAIL_LINES; i++) {
        from = line_start(p, first, from);
        if (from == first || i == TAIL_LINES - 1)
            break;
        from--; /* skip the \n of the previous line */
    }
    int rc = 0;
    while (rc == 0 && from <= n) {
        const unsigned char *lf = from < n ? memchr(p + from, '\n', n - from) : NULL;
        size_t end = lf == NULL ? n : (size_t)(lf - p);
        rc = add_line(out, p + from, end - from);
        from = end + 1;
    }
    return rc;
}

void tail_done(struct tail *t)
{
    dd_buf_done(&t->bytes);
}
