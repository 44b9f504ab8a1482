#include "report/report_lines_inner.h"

#include "base/utf8.h"

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

int report_put_line(struct dd_buf *out, const char *p, size_t n, size_t max)
{
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
            return dd_buf_puts(out, "...");
        if (c == '\t')
            rc = dd_buf_puts(out, "    ");
        else if (len == 0 || c < 0x20 || c == 0x7f)
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
