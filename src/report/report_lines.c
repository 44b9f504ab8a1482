#include "report/report_lines_inner.h"

#include "base/auto.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *report_next_line(const char **at, size_t *ret_len)
{
    const char *line = *at;
    if (line == NULL || *line == '\0')
        return NULL;
    const char *end = strchrnul(line, '\n');
    *at = *end == '\n' ? end + 1 : end;
    *ret_len = (size_t)(end - line);
    return line;
}

const char *report_last_lines(const char *text, size_t lines)
{
    const char *p = text + strlen(text);
    if (p > text && p[-1] == '\n')
        p--;
    for (; p > text; p--)
        if (p[-1] == '\n' && --lines == 0)
            break;
    return p;
}

/* Return the length of the escape sequence (colour, cursor movement) at p; 0: none. Src: ECMA-48.
 */
static size_t escape_len(const char *p, size_t n)
{
    if (n < 2 || p[0] != '\033')
        return 0;
    if (p[1] != '[')
        return 2;
    size_t i = 2;
    while (i < n && p[i] >= 0x20 && p[i] <= 0x3f)
        i++;
    return i < n ? i + 1 : i;
}

enum { CLEAN_MAX = 1000 /* bytes of a line */ };

/* True if the character of len bytes at p would control the terminal: C0, C1, or the direction of
 * text (U+202A to U+202E, U+2066 to U+2069), which can make a line read as another one. */
static bool is_control(const unsigned char *p, size_t len)
{
    if (len <= 1)
        return len == 0 || p[0] < 0x20 || p[0] == 0x7f;
    if (len == 2)
        return p[0] == 0xc2 && p[1] < 0xa0;
    return len == 3 && p[0] == 0xe2 &&
           ((p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) ||
            (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9));
}

/* End a line that is too long after a word, if one ends shortly before. */
static int cut_line(struct dd_buf *out, size_t from)
{
    enum { WORD_MAX = 30 };
    for (size_t n = 0; n < WORD_MAX && out->len - n > from; n++)
        if (out->data[out->len - n - 1] == ' ') {
            out->len -= n;
            break;
        }
    return dd_buf_puts(out, "...");
}

int report_put_line(struct dd_buf *out, const char *p, size_t n, size_t max)
{
    const size_t from = out->len;
    int rc = 0;
    size_t taken = 0;
    for (size_t i = 0; i < n && rc == 0;) {
        size_t skip = escape_len(p + i, n - i);
        size_t len = dd_utf8_len(p + i, n - i);
        unsigned char c = (unsigned char)p[i];
        if (skip > 0) {
            i += skip;
            continue;
        }
        if (taken + len > max)
            return cut_line(out, from);
        if (c == '\t')
            rc = dd_buf_puts(out, "    ");
        else if (is_control((const unsigned char *)p + i, len))
            rc = dd_buf_puts(out, c == '\r' ? "" : "?");
        else
            rc = dd_buf_append(out, p + i, len);
        i += len > 0 ? len : 1;
        taken += len > 0 ? len : 1;
    }
    return rc;
}

int report_put_block(struct dd_buf *out, const char *indent, const char *text, size_t max)
{
    const char *line;
    size_t len;
    int rc = 0;
    while (rc == 0 && (line = report_next_line(&text, &len)) != NULL) {
        rc = dd_buf_puts(out, indent);
        if (rc == 0)
            rc = report_put_line(out, line, len, max);
        if (rc == 0)
            rc = dd_buf_puts(out, "\n");
    }
    return rc;
}

int report_clean(struct dd_buf *out, size_t from)
{
    const char *text = dd_buf_str(out);
    DD_AUTO(free) char *copy = text != NULL ? strdup(text + from) : NULL;
    if (copy == NULL)
        return -ENOMEM;
    out->len = from;
    return report_put_block(out, "", copy, CLEAN_MAX);
}
