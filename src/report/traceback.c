#include "report/traceback.h"

#include "report/causes.h"
#include "report/error_file.h"
#include "report/report.h"
#include "report/report_lines_inner.h"
#include "report/stack_frames.h"
#include "report/stacks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of a line `  File "/u/train.py", line 81, in main`, which are not terminated. */
struct traceback_line {
    const char *file, *function;
    int nfile, nfunction, line;
};

static bool traceback_begins(const char *line, size_t len, const char *with)
{
    const size_t n = strlen(with);
    return len >= n && memcmp(line, with, n) == 0;
}

static bool traceback_read_line(const char *line, size_t len, struct traceback_line *ret)
{
    static const char begin[] = "  File \"", number[] = "\", line ", in[] = ", in ";
    const char *end = line + len;
    if (!traceback_begins(line, len, begin))
        return false;
    ret->file = line + sizeof(begin) - 1;
    const char *quote = memmem(ret->file, (size_t)(end - ret->file), number, sizeof(number) - 1);
    if (quote == NULL)
        return false;
    ret->nfile = (int)(quote - ret->file);
    const char *at = quote + sizeof(number) - 1;
    ret->line = 0;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        ret->line = ret->line < 100000000 ? 10 * ret->line + (*at - '0') : ret->line;
    if (!traceback_begins(at, (size_t)(end - at), in))
        return false;
    ret->function = at + sizeof(in) - 1;
    ret->nfunction = (int)(end - ret->function);
    return ret->nfunction > 0;
}

static int traceback_put(const struct traceback_line *l, struct dd_buf *frames)
{
    char function[STACKS_NAME + 1];
    char *file = strndup(l->file, (size_t)l->nfile);
    (void)snprintf(function, sizeof(function), "%.*s", l->nfunction, l->function);
    const int rc = file != NULL ? stack_put_frame(frames, function, file, l->line) : -ENOMEM;
    free(file);
    return rc;
}

/* Store the innermost STACKS_FRAMES lines of the last traceback in a ring. Return the number of all
 * its lines; 0: none, or the exception was raised while another one was handled. */
static size_t traceback_find(const char *text, struct traceback_line *ring)
{
    static const char *const chained[] = {
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:"};
    const char *line;
    size_t len;
    size_t n = 0;
    bool is_chained = false;
    while ((line = report_next_line(&text, &len)) != NULL) {
        line = report_skip_rank(line, &len);
        if (traceback_begins(line, len, "Traceback (most recent call last):"))
            n = 0;
        is_chained = is_chained || traceback_begins(line, len, chained[0]) ||
                     traceback_begins(line, len, chained[1]);
        n += traceback_read_line(line, len, &ring[n % STACKS_FRAMES]);
    }
    return is_chained ? 0 : n;
}

int traceback_frames(const char *text, struct dd_buf *frames)
{
    struct traceback_line *ring = calloc(STACKS_FRAMES, sizeof(*ring));
    const size_t n = ring != NULL ? traceback_find(text, ring) : 0;
    int rc = ring == NULL ? -ENOMEM : n == 0 ? -ENODATA : 0;
    size_t whole = frames->len;
    for (size_t i = 0; i < n && i < STACKS_FRAMES && rc == 0; i++) {
        whole = frames->len;
        rc = traceback_put(&ring[(n - 1 - i) % STACKS_FRAMES], frames);
    }
    free(ring);
    if (rc == -EMSGSIZE)
        frames->len = whole; /* outer frames are omitted */
    return rc == -EMSGSIZE ? 0 : rc;
}

int traceback_of_waiting(const char *tail, struct dd_buf *frames)
{
    const struct report_exit e = {.code = 1, .tail = tail};
    return failure_is_cascade(&e) ? traceback_frames(tail, frames) : -ENODATA;
}

bool traceback_is_printed(const char *frames)
{
    static const char *const hooks[] = {"_distributed_excepthook", "_print_exception_bltin",
                                        "print_exception"};
    struct stack_frame f;
    struct stack_frame outermost = {0};
    for (const char *at = frames; stack_frame_next(&at, &f);)
        outermost = f;
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
        if (outermost.function != NULL && stack_frame_is_function(&outermost, hooks[i]))
            return true;
    return false;
}
