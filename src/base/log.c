#include "base/log.h"

#include "base/buf.h"
#include "base/colour.h"
#include "base/io.h"
#include "base/screen.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 2048 };

static const char *const level_text[] = {
    [DD_LOG_ERR] = "error: ", [DD_LOG_WARN] = "warning: ", [DD_LOG_NOTICE] = "",
    [DD_LOG_INFO] = "info: ", [DD_LOG_DEBUG] = "debug: ",
};

/* A pipe that is writable accepts a whole line (less than PIPE_BUF bytes). */
static bool has_room(const struct dd_log *log)
{
    struct pollfd p = {.fd = log->fd, .events = POLLOUT};
    int ms = log->never_waits ? 0 : (int)log->waits_ms;
    int rc;
    if (ms == 0 && !log->never_waits)
        return true;
    while ((rc = poll(&p, 1, ms)) < 0 && errno == EINTR)
        ms = 0;
    return rc != 0;
}

bool dd_log_has_colours(int fd)
{
    const struct colour_env e = {.no_color = getenv("NO_COLOR"),
                                 .clicolor_force = getenv("CLICOLOR_FORCE"),
                                 .clicolor = getenv("CLICOLOR"),
                                 .term = getenv("TERM"),
                                 .terminal = isatty(fd)};
    return dd_colour_is_wanted(&e);
}

/* prefix: length of the text before the message. */
static void log_write(const struct dd_log *log, const char *text, size_t n, size_t prefix)
{
    DD_AUTO(buf) struct dd_buf coloured = DD_BUF_INIT(4 * n + 4096);
    const bool painted = log->colours && dd_colour_message(&coloured, text, n, prefix) == 0;
    (void)dd_screen_begin(log->screen);
    if (n > LINE_SIZE)
        (void)dd_write_full(log->fd, painted ? (const char *)coloured.data : text,
                            painted ? coloured.len : n);
    else if (write(log->fd, painted ? (const char *)coloured.data : text,
                   painted ? coloured.len : n) < 0)
        errno = 0; /* ignore failures such as EPIPE: the process continues without the line */
    dd_screen_end(log->screen);
}

__attribute__((format(printf, 3, 0))) static void
log_write_line(const struct dd_log *log, const char *prefix, const char *fmt, va_list ap)
{
    char line[LINE_SIZE];
    int saved = errno;
    int n = snprintf(line, sizeof(line), "%s: %s", log->who, prefix);
    size_t len = n < 0 ? 0 : (size_t)n;
    errno = saved;
    n = vsnprintf(line + len, sizeof(line) - len - 1, fmt, ap);
    if (n > 0)
        len += (size_t)n < sizeof(line) - len - 1 ? (size_t)n : sizeof(line) - len - 2;
    line[len++] = '\n';
    if (has_room(log))
        log_write(log, line, len, strlen(log->who) + 2);
    errno = saved;
}

void dd_log(const struct dd_log *log, enum dd_log_level level, const char *fmt, ...)
{
    va_list ap;
    if (log == NULL || log->fd < 0 || level > log->level)
        return;
    va_start(ap, fmt);
    log_write_line(log, level_text[level], fmt, ap);
    va_end(ap);
}

void dd_log_more(const struct dd_log *log, const char *text, size_t n)
{
    DD_AUTO(buf) struct dd_buf lines = DD_BUF_INIT(n + 1);
    if (log == NULL || log->fd < 0 || n == 0)
        return;
    const bool lacks_end = text[n - 1] != '\n' && dd_buf_append(&lines, text, n) == 0 &&
                           dd_buf_puts(&lines, "\n") == 0;
    log_write(log, lacks_end ? (const char *)lines.data : text, lacks_end ? lines.len : n, 0);
}

void dd_trace(const struct dd_log *log, unsigned part, const char *fmt, ...)
{
    char prefix[80];
    va_list ap;
    if (!dd_traces(log, part) || log->fd < 0)
        return;
    (void)snprintf(prefix, sizeof(prefix), "trace: t=%.6f wall=%.6f ", (double)dd_now_ns() / 1e9,
                   (double)dd_now_real_ns() / 1e9);
    va_start(ap, fmt);
    log_write_line(log, prefix, fmt, ap);
    va_end(ap);
}

const char *dd_log_escape(char *out, unsigned long size, const void *text, unsigned long len)
{
    const unsigned char *p = text;
    size_t o = 0;
    for (size_t i = 0; i < len && o + 5 < size; i++) {
        if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\')
            out[o++] = (char)p[i];
        else
            o += (size_t)snprintf(out + o, size - o, "\\x%02x", p[i]);
    }
    if (size > 0)
        out[o] = '\0';
    return out;
}
