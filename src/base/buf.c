#include "base/buf.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dd_buf_reserve(struct dd_buf *b, size_t more)
{
    if (more > b->max || b->len > b->max - more)
        return -EMSGSIZE;
    size_t need = b->len + more + 1; /* one spare byte for the NUL of dd_buf_str() */
    if (need <= b->cap)
        return 0;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    if (cap > b->max + 1 && need <= b->max + 1)
        cap = b->max + 1;
    unsigned char *p = realloc(b->data, cap);
    if (p == NULL)
        return -ENOMEM;
    b->data = p;
    b->cap = cap;
    return 0;
}

int dd_buf_append(struct dd_buf *b, const void *p, size_t n)
{
    int rc = dd_buf_reserve(b, n);
    if (rc == 0 && n > 0) {
        memcpy(b->data + b->len, p, n);
        b->len += n;
    }
    return rc;
}

int dd_buf_puts(struct dd_buf *b, const char *s)
{
    return dd_buf_append(b, s, strlen(s));
}

int dd_buf_vprintf(struct dd_buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    int rc = n < 0 ? -EINVAL : dd_buf_reserve(b, (size_t)n);
    if (rc == 0) {
        (void)vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return rc;
}

int dd_buf_printf(struct dd_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = dd_buf_vprintf(b, fmt, ap);
    va_end(ap);
    return rc;
}

void dd_buf_consume(struct dd_buf *b, size_t n)
{
    if (n < b->len)
        memmove(b->data, b->data + n, b->len - n);
    b->len -= n < b->len ? n : b->len;
}

void dd_buf_clear(struct dd_buf *b)
{
    b->len = 0;
}

void dd_buf_done(struct dd_buf *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

const char *dd_buf_str(struct dd_buf *b)
{
    if (b->cap == 0) { /* empty; otherwise dd_buf_reserve() has left a spare byte */
        if (dd_buf_reserve(b, 0) < 0)
            return NULL;
    }
    b->data[b->len] = '\0';
    return (const char *)b->data;
}

char *dd_buf_steal(struct dd_buf *b)
{
    if (dd_buf_str(b) == NULL)
        return NULL;
    char *s = (char *)b->data;
    b->data = NULL;
    b->len = b->cap = 0;
    return s;
}
