/* Splits output of a worker into lines, and sanitizes it for a terminal. */
#ifndef DD_REPORT_REPORT_LINES_INNER_H
#define DD_REPORT_REPORT_LINES_INNER_H

#include "base/buf.h"

#include <stddef.h>

/* Return the next line of *at without its newline; NULL: none left. Start with *at = text. */
const char *report_next_line(const char **at, size_t *ret_len);
/* Return the start of the last `lines` lines. */
const char *report_last_lines(const char *text, size_t lines);
/* Append a line without control characters and escape sequences, truncated after max bytes with
 * "...". */
int report_put_line(struct dd_buf *out, const char *p, size_t n, size_t max);
/* Append every line of text, indented and followed by "\n". */
int report_put_block(struct dd_buf *out, const char *indent, const char *text, size_t max);
/* Sanitize the lines of out that begin at `from`. */
int report_clean(struct dd_buf *out, size_t from);

#endif
