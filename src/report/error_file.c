#include "report/error_file.h"

#include "base/auto.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "report/report_lines_inner.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void report_error_done(struct report_error *e)
{
    free(e->message);
    free(e->trace);
    *e = (struct report_error){0};
}

/* Copy at most max bytes, without splitting a UTF-8 sequence. */
static char *error_file_cut(const char *text, size_t max)
{
    size_t n = strlen(text);
    if (n > max)
        for (n = max; n > 0 && (text[n] & 0xc0) == 0x80;)
            n--;
    return strndup(text, n);
}

static bool ends_with_line(const char *text, size_t n, const char *line)
{
    size_t len = strlen(line);
    return n >= len && memcmp(text + n - len, line, len) == 0 &&
           (n == len || text[n - len - 1] == '\n');
}

/* Skip the first frame if it is that of the decorator. */
static const char *skip_wrapper(const char *trace)
{
    static const char file[] = "elastic/multiprocessing/errors/__init__.py\"";
    size_t len = strcspn(trace, "\n");
    const char *next = strstr(trace, "\n  File \"");
    bool own = memmem(trace, len, file, sizeof(file) - 1) != NULL;
    return own && next != NULL ? next + 1 : trace;
}

/* Return a copy of the end of the traceback, without its heading and final message; NULL: out of
 * memory. */
static char *last_of(const char *stack, const char *message)
{
    static const char heading[] = "Traceback (most recent call last):\n";
    size_t n = strlen(stack);
    while (n > 0 && isspace((unsigned char)stack[n - 1]))
        n--;
    if (ends_with_line(stack, n, message))
        n -= strlen(message);
    while (n > 0 && stack[n - 1] == '\n')
        n--;
    DD_AUTO(free) char *body = strndup(stack, n);
    if (body == NULL)
        return NULL;
    const char *from = report_last_lines(body, ERROR_TRACE_LINES);
    if (strncmp(from, heading, sizeof(heading) - 1) == 0)
        from += sizeof(heading) - 1;
    from = skip_wrapper(from);
    size_t len = strlen(from);
    if (len > ERROR_TRACE_MAX) {
        from += len - ERROR_TRACE_MAX;
        const char *lf = strchr(from, '\n'); /* start at a line boundary */
        from = lf != NULL ? lf + 1 : from;
    }
    char *trace = strdup(from);
    return trace != NULL ? dd_utf8_clean(trace) : NULL;
}

int report_error_parse(struct report_error *ret, const void *p, size_t n)
{
    if (n > ERROR_FILE_MAX)
        return -EPROTO;
    json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
    json_t *m = json_object_get(o, "message");
    json_t *inner = json_object_get(m, "message");
    json_t *stack = json_object_get(json_object_get(m, "extraInfo"), "py_callstack");
    const char *message = json_string_value(inner != NULL ? inner : m);
    const char *trace = json_string_value(stack);
    int rc = message == NULL ? -EPROTO : 0;
    if (rc == 0) {
        struct report_error e = {.message = error_file_cut(message, ERROR_MESSAGE_MAX),
                                 .trace = last_of(trace != NULL ? trace : "", message)};
        if (e.message == NULL || e.trace == NULL) {
            report_error_done(&e);
            rc = -ENOMEM;
        } else {
            *ret = e;
        }
    }
    json_decref(o);
    return rc;
}

const char *report_skip_rank(const char *line, size_t *len)
{
    static const char before[] = "[rank";
    const char *at = line + sizeof(before) - 1;
    const char *end = line + *len;
    if (*len < sizeof(before) || memcmp(line, before, sizeof(before) - 1) != 0 ||
        !isdigit((unsigned char)*at))
        return line;
    while (at < end && isdigit((unsigned char)*at))
        at++;
    if (end - at < 3 || memcmp(at, "]: ", 3) != 0)
        return line;
    *len = (size_t)(end - at - 3);
    return at + 3;
}

int report_is_exception(const char *line, size_t len)
{
    static const char *const ends[] = {"Error", "Exception", "Interrupt", "Exit", "Warning"};
    size_t n = 0;
    while (n < len && (isalnum((unsigned char)line[n]) || line[n] == '_' || line[n] == '.'))
        n++;
    if (n < len && line[n] != ':')
        return 0;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t k = strlen(ends[i]);
        if (n > k && memcmp(line + n - k, ends[i], k) == 0)
            return 1;
    }
    return 0;
}
