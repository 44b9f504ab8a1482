/* The end of a round: read and flush the workers' output, write it to the files, or give up. */
#include "worker/output_inner.h"

#include "base/auto.h"
#include "base/io.h"

#include <unistd.h>

/* Pass on the folded lines once no more can join them. */
static bool fold_through(struct worker_output *o)
{
    for (int i = 0; i < 2 * o->nlocal; i++)
        if (output_stream_at(o, i)->fd >= 0 || output_stream_at(o, i)->in.len > 0)
            return false;
    if (!output_fold_empty(o->fold))
        output_fold_write(o->fold, true);
    return output_fold_empty(o->fold);
}

static bool all_through(struct worker_output *o)
{
    if (o->fold != NULL && !fold_through(o))
        return false;
    bool done = console_empty(o->console[0]) && console_empty(o->console[1]);
    for (int k = 0; k < 2; k++)
        done = done && (o->filter[k] == NULL || console_empty(o->filter[k]));
    for (int i = 0; i < 2 * o->nlocal; i++)
        done = done && output_stream_closed(output_stream_at(o, i));
    return done;
}

/* Return the number of bytes that have left this process. */
static uint64_t written(struct worker_output *o)
{
    uint64_t n = console_written(o->console[0]) + console_written(o->console[1]);
    for (int i = 0; i < 2 * o->nlocal; i++)
        n += output_stream_at(o, i)->file != NULL ? console_written(output_stream_at(o, i)->file)
                                                  : 0;
    return n;
}

void output_filters_close(struct worker_output *o)
{
    for (int k = 0; k < 2; k++) {
        console_free(DD_TAKE(o->filter[k]));
        if (o->filter_fd[k] >= 0)
            close(DD_TAKE_FD(o->filter_fd[k]));
    }
}

/* The writer has all output; let it finish the files. */
static void finish_files(struct worker_output *o)
{
    o->finishing = true;
    for (int i = 0; i < 2 * o->nlocal; i++)
        output_stream_close(output_stream_at(o, i));
    output_filters_close(o);
    writer_finish(o->writer);
}

void output_finish_check(struct worker_output *o)
{
    if (o->done == NULL)
        return;
    bool through = all_through(o);
    if (through && o->writer != NULL && !o->finishing)
        finish_files(o);
    if (through && (o->writer == NULL || o->files_done))
        event_active(o->on_finished, EV_READ, 0); /* call output_on_finished() from the loop: the
                                                     caller is still changing its state */
    struct console *const to[] = {o->console[0], o->console[1], o->filter[0], o->filter[1]};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        if (to[i] != NULL && !console_empty(to[i]))
            console_wait(to[i]);
    for (int i = 0; i < 2 * o->nlocal; i++)
        if (output_stream_at(o, i)->file != NULL && !console_empty(output_stream_at(o, i)->file))
            console_wait(output_stream_at(o, i)->file);
}

void output_on_files_done(void *arg)
{
    struct worker_output *o = arg;
    o->files_done = true;
    output_finish_check(o);
}

static void limit_set(struct worker_output *o)
{
    struct timeval tv = dd_timeval(o->limit_ms * DD_NS_PER_MS);
    o->written = written(o);
    if (o->limit_ms > 0)
        event_add(o->on_finished, &tv);
}

void output_on_finished(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    struct worker_output *o = arg;
    if (o->done == NULL)
        return;
    bool through = all_through(o) && (o->writer == NULL || o->files_done);
    if (!through && (what & EV_TIMEOUT) != 0) {
        if (o->written != written(o)) {
            limit_set(o);
            return;
        }
        dd_log(o->log, DD_LOG_WARN,
               console_empty(o->console[0]) && console_empty(o->console[1])
                   ? "the file system of the logs accepts no output; the last lines are not logged"
                   : "the terminal or pipe accepts no output; the last lines are lost");
    } else if (!through) {
        return;
    }
    void (*done)(void *done_arg) = o->done;
    void *done_arg = o->done_arg;
    worker_output_abort(o);
    done(done_arg);
}

void worker_output_finish(struct worker_output *o, unsigned limit_ms, void (*done)(void *arg),
                          void *arg)
{
    o->done = done;
    o->done_arg = arg;
    o->limit_ms = limit_ms;
    limit_set(o);
    for (int i = 0; i < 2 * o->nlocal; i++) {
        output_stream_at(o, i)->draining = true;
        output_stream_pump(output_stream_at(o, i), false);
    }
    output_finish_check(o);
}
