/* A growable byte buffer with a hard upper limit. */
#ifndef DD_BASE_BUF_H
#define DD_BASE_BUF_H

#include "base/auto.h"

#include <stdarg.h>
#include <stddef.h>

struct dd_buf {
    unsigned char *data; /* NULL until something is stored */
    size_t len;
    size_t cap;
    size_t max; /* appending beyond this fails with -EMSGSIZE */
};

#define DD_BUF_INIT(limit)                                                                         \
    (struct dd_buf)                                                                                \
    {                                                                                              \
        .max = (limit)                                                                             \
    }

/* Return 0, -ENOMEM or -EMSGSIZE; on failure the buffer is unchanged. */
int dd_buf_reserve(struct dd_buf *b, size_t more); /* space for `more` bytes after len */
int dd_buf_append(struct dd_buf *b, const void *p, size_t n);
int dd_buf_puts(struct dd_buf *b, const char *s);
int dd_buf_printf(struct dd_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int dd_buf_vprintf(struct dd_buf *b, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

void dd_buf_consume(struct dd_buf *b, size_t n); /* drops the first n bytes, n <= len */
void dd_buf_clear(struct dd_buf *b);             /* len = 0, memory kept */
void dd_buf_done(struct dd_buf *b);              /* frees the content, keeps max */

/* Return the content as a C string, valid until the next change; NULL: out of memory. */
const char *dd_buf_str(struct dd_buf *b);
/* Return the content as a C string that the caller frees, and empty the buffer. NULL: out of
 * memory. */
char *dd_buf_steal(struct dd_buf *b);

static inline void dd_auto_buf(struct dd_buf *b)
{
    dd_buf_done(b);
}

#endif
