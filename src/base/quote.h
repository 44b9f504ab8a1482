/* Text as one word of a shell, which reads the same bytes again whatever they are. */
#ifndef DD_BASE_QUOTE_H
#define DD_BASE_QUOTE_H

#include "base/buf.h"

/* For sh and its like. As dd_buf_append(). */
int dd_quote_sh(struct dd_buf *out, const char *text);
/* For csh, behind eval "`...`"; -EINVAL: a newline, of which a back-quoted command there keeps
 * none. */
int dd_quote_csh(struct dd_buf *out, const char *text);

#endif
