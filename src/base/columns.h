/* Text for the columns of a terminal. Pure.
 *
 * The text may come from workers and peers: no control character and no escape sequence of it
 * reaches the terminal. */
#ifndef DD_BASE_COLUMNS_H
#define DD_BASE_COLUMNS_H

#include "base/buf.h"

#include <stdbool.h>

/* Append the characters at *text that fit into `width` columns, at most to the next newline, and
 * advance *text behind these characters. Omits escape sequences and characters without a width, and
 * writes '?' for control characters and invalid bytes; without utf8, for all but ASCII. With width
 * > 0 it consumes at least one byte, unless *text is at its end or at a newline. Return the number
 * of columns, or -errno. */
int dd_columns_put(struct dd_buf *out, const char **text, int width, bool utf8);
/* Append text as dd_columns_put() does, then blanks up to `width` columns. Return 0 or -errno. */
int dd_columns_pad(struct dd_buf *out, const char *text, int width, bool utf8);
/* True if these values of environment variables (NULL: not set) name a locale with UTF-8. */
bool dd_columns_are_utf8(const char *lc_all, const char *lc_ctype, const char *lang);

#endif
