#include "worker/output_fold.h"

#include "base/io.h"
#include "worker/console.h"
#include "worker/line_fold.h"
#include "worker/lines.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

enum {
    WINDOW_MS = 200,
    LINE_EXTRA = 1 << 17, /* bytes for the rank list and the upper ends of number ranges */
};

struct output_fold {
    struct console *console[2];
    const struct dd_log *log;
    struct event *on_due;
    struct line_fold *lines[2]; /* NULL: no round */
    struct dd_buf line;
};

static bool nothing_waits(const struct output_fold *f, int k)
{
    return f->lines[k] == NULL || line_fold_empty(f->lines[k]);
}

bool output_fold_empty(const struct output_fold *f)
{
    return nothing_waits(f, 0) && nothing_waits(f, 1);
}

/* Pass on lines for console k. force: even if the console is full, to make room for the next line.
 */
static void pass_on(struct output_fold *f, int k, bool all, bool force)
{
    const uint64_t now = dd_now_ns();
    int rc = 1;
    while (rc > 0 && !nothing_waits(f, k) && (force || !console_full(f->console[k]))) {
        dd_buf_clear(&f->line);
        rc = line_fold_take(f->lines[k], now, all, &f->line);
        if (rc > 0) {
            console_end_line(f->console[k]);
            rc = console_put(f->console[k], "", f->line.data, f->line.len, false);
            rc = rc < 0 ? rc : 1;
        }
    }
    if (rc < 0)
        dd_log(f->log, DD_LOG_WARN, "cannot pass on folded output, some of which is lost: %s",
               rc == -EMSGSIZE ? "the queue is full" : "out of memory");
}

/* Set the timer for the next line. A console that is full calls output_fold_write() later. */
static void wait_for_next(struct output_fold *f)
{
    const uint64_t now = dd_now_ns();
    uint64_t wait = UINT64_MAX;
    for (int k = 0; k < 2; k++) {
        if (nothing_waits(f, k))
            continue;
        const uint64_t due = line_fold_due(f->lines[k]);
        const uint64_t left = due > now ? due - now : 0;
        if (console_full(f->console[k]))
            console_wait(f->console[k]);
        else if (left < wait)
            wait = left;
    }
    const struct timeval tv = dd_timeval(wait);
    if (wait == UINT64_MAX)
        event_del(f->on_due);
    else
        event_add(f->on_due, &tv);
}

void output_fold_write(struct output_fold *f, bool all)
{
    for (int k = 0; k < 2; k++) {
        pass_on(f, k, all, false);
        console_flush(f->console[k]);
    }
    wait_for_next(f);
}

static void on_due(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    output_fold_write(arg, false);
}

static void forget(struct output_fold *f)
{
    event_del(f->on_due);
    for (int k = 0; k < 2; k++) {
        line_fold_free(f->lines[k]);
        f->lines[k] = NULL;
    }
}

void output_fold_free(struct output_fold *f)
{
    if (f == NULL)
        return;
    if (f->on_due != NULL) {
        forget(f);
        event_free(f->on_due);
    }
    dd_buf_done(&f->line);
    free(f);
}

int output_fold_new(struct output_fold **ret, struct event_base *base,
                    struct console *const console[2], const struct dd_log *log, struct dd_err *err)
{
    struct output_fold *f = calloc(1, sizeof(*f));
    if (f != NULL)
        *f = (struct output_fold){.console = {console[0], console[1]},
                                  .log = log,
                                  .line = DD_BUF_INIT(LINES_MAX + LINE_EXTRA),
                                  .on_due = event_new(base, -1, 0, on_due, f)};
    if (f == NULL || f->on_due == NULL) {
        output_fold_free(f);
        return dd_err_set(err, -ENOMEM, "out of memory");
    }
    *ret = f;
    return 0;
}

int output_fold_begin(struct output_fold *f, const int *ranks, int nlocal)
{
    int rc = 0;
    forget(f);
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = line_fold_new(&f->lines[k], ranks, nlocal, WINDOW_MS * DD_NS_PER_MS);
    return rc;
}

void output_fold_line(struct output_fold *f, int k, int local_rank, const void *line, size_t len)
{
    const char *p = line;
    if (f->lines[k] == NULL)
        return;
    if (len > 0 && p[len - 1] == '\n')
        len--;
    if (len > 0 && p[len - 1] == '\r')
        len--;
    pass_on(f, k, false, true); /* makes room for another group */
    if (line_fold_add(f->lines[k], local_rank, line, len, dd_now_ns()) < 0)
        dd_log(f->log, DD_LOG_WARN, "out of memory: a line of local rank %d is lost", local_rank);
    pass_on(f, k, false, false);
    if (!nothing_waits(f, k) && !event_pending(f->on_due, EV_TIMEOUT, NULL))
        wait_for_next(f);
}

void output_fold_drop(struct output_fold *f, int k)
{
    if (f->lines[k] != NULL)
        line_fold_clear(f->lines[k]);
}
