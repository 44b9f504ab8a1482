#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int dd_err_set(struct dd_err *err, int rc, const char *fmt, ...)
{
    if (err == NULL)
        return rc;
    va_list ap;
    int saved = errno;
    va_start(ap, fmt);
    errno = saved;
    (void)vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    err->rc = rc;
    return rc;
}

int dd_err_tip(struct dd_err *err, int rc, const char *fmt, ...)
{
    static const char head[] = "\n  tip: ";
    if (err == NULL)
        return rc;
    const size_t len = strnlen(err->text, sizeof(err->text));
    if (len + sizeof(head) >= sizeof(err->text)) /* no room: omit the tip */
        return rc;
    va_list ap;
    memcpy(err->text + len, head, sizeof(head));
    va_start(ap, fmt);
    (void)vsnprintf(err->text + len + sizeof(head) - 1, sizeof(err->text) - len - sizeof(head) + 1,
                    fmt, ap);
    va_end(ap);
    return rc;
}

int dd_err_where(struct dd_err *err, int rc, const char *fmt, ...)
{
    if (err == NULL)
        return rc;
    char place[sizeof(err->text)];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(place, sizeof(place), fmt, ap);
    va_end(ap);
    if (n < 0)
        return rc;
    size_t len = (size_t)n < sizeof(place) ? (size_t)n : sizeof(place) - 1;
    if (len + 2 >= sizeof(err->text))
        return rc;
    size_t room = sizeof(err->text) - len - 3;
    size_t keep = strnlen(err->text, room);
    memmove(err->text + len + 2, err->text, keep);
    memcpy(err->text, place, len);
    memcpy(err->text + len, ": ", 2);
    err->text[len + 2 + keep] = '\0';
    err->rc = rc;
    return rc;
}
