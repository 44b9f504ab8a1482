#include "base/quote.h"

#include <errno.h>
#include <string.h>

/* Append text in single quotes; bytes in `special` are moved outside of the quotes and escaped with
 * a backslash. */
static int quote(struct dd_buf *out, const char *text, const char *special)
{
    int rc = dd_buf_puts(out, "'");
    while (rc == 0 && *text != '\0') {
        size_t n = strcspn(text, special);
        rc = dd_buf_append(out, text, n);
        text += n;
        if (rc == 0 && *text != '\0')
            rc = dd_buf_printf(out, "'\\%c'", *text++);
    }
    return rc < 0 ? rc : dd_buf_puts(out, "'");
}

int dd_quote_sh(struct dd_buf *out, const char *text)
{
    return quote(out, text, "'");
}

/* csh expands history even within single quotes and in scripts. */
int dd_quote_csh(struct dd_buf *out, const char *text)
{
    return strchr(text, '\n') != NULL ? -EINVAL : quote(out, text, "'!");
}
