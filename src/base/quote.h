/* Quote text as one word of a shell, for arbitrary bytes. */
#ifndef DD_BASE_QUOTE_H
#define DD_BASE_QUOTE_H

#include "base/buf.h"

/* Quote for sh and compatible shells. Errors as for dd_buf_append(). */
int dd_quote_sh(struct dd_buf *out, const char *text);
/* Quote for csh, within eval "`...`". -EINVAL: text contains a newline, which command substitution
 * in csh drops. */
int dd_quote_csh(struct dd_buf *out, const char *text);

#endif
