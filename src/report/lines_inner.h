/* Text of a worker, line by line, as a terminal and a reader can bear it. */
#ifndef DD_REPORT_LINES_INNER_H
#define DD_REPORT_LINES_INNER_H

#include "base/buf.h"

#include <stddef.h>

/* The next line of *at, without its end; NULL when there is none left. Start with *at = text. */
const char *report_next_line(const char **at, size_t *ret_len);
/* Where the last `lines` lines of the text begin. */
const char *report_last_lines(const char *text, size_t lines);
/* Appends one line, cut after max bytes with "...", without colours and other control characters.
 */
int report_put_line(struct dd_buf *out, const char *p, size_t n, size_t max);
/* Every line of text with `indent` in front and "\n" behind. */
int report_put_block(struct dd_buf *out, const char *indent, const char *text, size_t max);

#endif
