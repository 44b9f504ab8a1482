#include "worker/output_inner.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/aside.h"
#include "worker/output_dirs.h"
#include "worker/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAIL_TEXT_MAX (2 * TAIL_BYTES)
enum {
    OPEN_MS = 1500, /* time limit for opening log files: the agent sends no heartbeat meanwhile */
    TAILS_TOTAL = 16 * 1024 *
                  1024, /* bytes for the tails of all streams; each buffer takes twice its tail */
    TAIL_LEAST = 1024,
};

DD_AUTO_DEFINE(output, struct worker_output *, worker_output_free);

static int no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* The console has room again. */
static void on_room(void *arg)
{
    struct worker_output *o = arg;
    for (int i = 0; i < 2 * o->nlocal; i++)
        output_stream_pump(output_stream_at(o, i), false);
    if (o->fold != NULL)
        output_fold_write(o->fold, false);
    output_finish_check(o);
}

static void on_broken(void *arg)
{
    struct worker_output *o = arg;
    for (int i = 0; i < 2 * o->nlocal; i++) {
        struct output_stream *s = output_stream_at(o, i);
        if (s->console != NULL && console_broken(s->console))
            output_stream_lose_console(s);
    }
    for (int k = 0; k < 2 && o->fold != NULL; k++)
        if (console_broken(o->console[k]))
            output_fold_drop(o->fold, k);
    output_finish_check(o);
}

static int consoles_open(struct worker_output *o, struct dd_err *err)
{
    struct console_cb cb = {.on_room = on_room, .on_broken = on_broken, .arg = o};
    int rc = console_new(&o->console[0], o->base, STDOUT_FILENO, o->log, &cb, err);
    if (rc == 0 && console_same(STDOUT_FILENO, STDERR_FILENO))
        o->console[1] = o->console[0];
    else if (rc == 0)
        rc = console_new(&o->console[1], o->base, STDERR_FILENO, o->log, &cb, err);
    return rc;
}

int worker_output_new(struct worker_output **ret, struct event_base *base,
                      const struct output_spec *spec, struct dd_err *err)
{
    DD_AUTO(output) struct worker_output *o = calloc(1, sizeof(*o));
    if (o == NULL)
        return no_memory(err);
    o->base = base;
    o->attempt = -1;
    o->filter_fd[0] = o->filter_fd[1] = -1;
    o->tail_text = DD_BUF_INIT(TAIL_TEXT_MAX);
    int rc = output_options_take(o, spec, err);
    if (rc < 0)
        return rc;
    *ret = NULL;
    bool filtered = o->visible.n > 0;
    if (o->raw && !o->label && !o->watch && !filtered && o->log_dir == NULL &&
        !rank_map_any(&o->redirects) && !rank_map_any(&o->tee))
        return 0;
    o->on_finished = event_new(base, -1, 0, output_on_finished, o);
    if (o->on_finished == NULL)
        return no_memory(err);
    rc = consoles_open(o, err);
    if (rc == 0 && o->folds)
        rc = output_fold_new(&o->fold, base, o->console, o->log, err);
    /* make the directory now: a failure is a usage error, not one of a worker */
    if (rc == 0 && (o->log_dir != NULL ||
                    (!o->no_files && (rank_map_any(&o->redirects) || output_any_filter(o)))))
        rc = output_run_dir(&o->run_dir, o->log_dir, o->tmp_dir, o->run_id, err);
    if (rc == 0 && o->run_dir != NULL &&
        o->log_dir == NULL) /* otherwise the user would not know where the logs are */
        dd_log(o->log, DD_LOG_NOTICE, "writing logs to '%s'", o->run_dir);
    if (rc == 0)
        *ret = DD_TAKE(o);
    return rc;
}

static int make_dirs(void *arg, struct dd_err *err)
{
    const struct worker_output *o = arg;
    return output_attempt_dirs(o->run_dir, o->attempt, o->nlocal, err);
}

/* Make the queue for the file of filtered lines that all streams with number k share (0 stdout, 1
 * stderr). */
static int filter_open(struct worker_output *o, int k, struct dd_err *err)
{
    const struct console_cb cb = {.on_room = on_room, .arg = o};
    int fd = o->filter_fd[k] = writer_socket(o->writer, 2 * o->nlocal + k, err);
    int rc = fd < 0 ? fd : console_new(&o->filter[k], o->base, fd, o->log, &cb, err);
    for (int i = 0; i < o->nlocal && rc == 0; i++) {
        struct output_stream *s = &o->ranks[i].stream[k];
        bool tee = (rank_map_get(&o->tee, i) & (k == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR)) != 0;
        s->filter = s->mode == OUTPUT_PIPE && tee ? o->filter[k] : NULL;
    }
    return rc;
}

/* Make directories and files of this attempt. Numbers of files in the writer: 2 * local rank, plus
 * 1 for stderr, then the filtered ones. */
static int files_begin(struct worker_output *o, struct dd_err *err)
{
    int n = 2 * o->nlocal + 2;
    if (o->run_dir == NULL)
        return 0;
    DD_AUTO(free) struct writer_file *files = calloc((size_t)n, sizeof(*files));
    if (files == NULL)
        return no_memory(err);
    for (int i = 0; i < n - 2; i++)
        files[i] = (struct writer_file){.path = output_stream_at(o, i)->path,
                                        .direct = output_stream_at(o, i)->mode == OUTPUT_FILE};
    for (int k = 0; k < 2; k++)
        files[n - 2 + k].path = o->filter_path[k];
    const struct writer_spec spec = {.prepare = make_dirs,
                                     .files = files,
                                     .n = n,
                                     .limit_ms = OPEN_MS,
                                     .log = o->log,
                                     .on_end = output_on_files_done,
                                     .arg = o};
    int rc = writer_new(&o->writer, o->base, &spec, err);
    for (int k = 0; k < 2 && rc == 0; k++)
        if (o->filter_path[k] != NULL)
            rc = filter_open(o, k, err);
    return rc;
}

static size_t tail_share(int nlocal)
{
    size_t share = (size_t)TAILS_TOTAL / (4 * (size_t)nlocal);
    return share < TAIL_LEAST ? TAIL_LEAST : share < TAIL_BYTES ? share : TAIL_BYTES;
}

int worker_output_begin(struct worker_output *o, int attempt, const int *ranks, int nlocal,
                        bool alone, struct dd_err *err)
{
    int rc = 0;
    worker_output_abort(o);
    output_ranks_done(o);
    o->attempt = attempt > o->attempt ? attempt : o->attempt + 1;
    o->alone = alone;
    o->tail_most = tail_share(nlocal);
    o->ranks = calloc((size_t)nlocal, sizeof(*o->ranks));
    if (o->ranks == NULL)
        return no_memory(err);
    for (; o->nlocal < nlocal && rc == 0; o->nlocal++)
        rc = output_rank_begin(o, o->nlocal, ranks[o->nlocal]);
    if (rc == 0)
        rc = output_filters_begin(o);
    if (rc == 0 && o->fold != NULL)
        rc = output_fold_begin(o->fold, ranks, nlocal);
    return rc < 0 ? no_memory(err) : files_begin(o, err);
}

const char *worker_output_error_file(const struct worker_output *o, int local_rank)
{
    if (local_rank < 0 || local_rank >= o->nlocal || o->ranks[local_rank].error_file == NULL)
        return "";
    return o->ranks[local_rank].error_file;
}

const char *worker_output_log(const struct worker_output *o, int local_rank)
{
    const char *path = local_rank >= 0 && local_rank < o->nlocal
                           ? o->ranks[local_rank].stream[1].path
                           : NULL;
    return path != NULL ? path : "";
}

/* Read the tail of a file that the worker has written itself. */
static void tail_read(struct worker_output *o, struct tail *t, const char *path)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    if (o->hangs)
        return;
    o->hangs = aside_read_end(path, TAIL_BYTES, &text) == -ETIMEDOUT;
    if (text.len > 0)
        tail_add(t, text.data, text.len);
}

static int tail_of(struct worker_output *o, struct output_stream *s)
{
    struct tail t = {0};
    if (s->mode == OUTPUT_FILE)
        tail_read(o, &t, s->path);
    int rc = tail_format(s->mode == OUTPUT_FILE ? &t : &s->tail, &o->tail_text);
    tail_done(&t);
    return rc;
}

const char *worker_output_tail(struct worker_output *o, int local_rank)
{
    if (local_rank < 0 || local_rank >= o->nlocal)
        return "";
    int rc = 0;
    dd_buf_clear(&o->tail_text);
    for (int k = 1; k >= 0 && rc == 0 && o->tail_text.len == 0; k--)
        rc = tail_of(o, &o->ranks[local_rank].stream[k]);
    const char *text = rc < 0 ? NULL : dd_buf_str(&o->tail_text);
    return text == NULL ? "" : text;
}

const char *worker_output_recent(struct worker_output *o, int local_rank, bool files)
{
    if (local_rank < 0 || local_rank >= o->nlocal)
        return "";
    const struct output_stream *s = o->ranks[local_rank].stream;
    const struct output_stream *last = s[1].last_ns > s[0].last_ns ? &s[1] : &s[0];
    if (last->last_ns == 0)
        return files ? worker_output_tail(o, local_rank) : "";
    dd_buf_clear(&o->tail_text);
    const int rc = tail_format(&last->tail, &o->tail_text);
    const char *text = rc < 0 ? NULL : dd_buf_str(&o->tail_text);
    return text == NULL ? "" : text;
}

void worker_output_keep(struct worker_output *o, int local_rank, const void *p, size_t n)
{
    if (local_rank < 0 || local_rank >= o->nlocal)
        return;
    struct output_stream *s = &o->ranks[local_rank].stream[0];
    s->last_ns = dd_now_ns();
    if (s->first_ns == 0)
        s->first_ns = s->last_ns;
    tail_add(&s->tail, p, n);
    if (s->steps != NULL)
        step_lines_feed(s->steps, 0, p, n);
}

void worker_output_watch_steps(struct worker_output *o, struct step_lines *steps)
{
    o->steps = steps;
    for (int i = 0; steps == NULL && i < 2 * o->nlocal; i++)
        output_stream_at(o, i)->steps = NULL;
}

uint64_t worker_output_first_ns(const struct worker_output *o, int local_rank)
{
    if (local_rank < 0 || local_rank >= o->nlocal)
        return 0;
    const uint64_t out = o->ranks[local_rank].stream[0].first_ns;
    const uint64_t err = o->ranks[local_rank].stream[1].first_ns;
    return out == 0 || (err != 0 && err < out) ? err : out;
}

bool worker_output_hides_terminal(const struct worker_output *o, int local_rank)
{
    const struct output_stream *s = &o->ranks[local_rank].stream[0];
    return s->mode == OUTPUT_PIPE && s->console != NULL && console_is_terminal(s->console) &&
           !s->tty;
}

/* If there are too few descriptors for pipes, let the workers write to the console directly. */
static int inherit_instead(struct worker_output *o, struct output_stream *s)
{
    output_stream_close(s);
    s->mode = OUTPUT_INHERIT;
    if (!o->warned)
        dd_log(o->log, DD_LOG_WARN,
               "not enough file descriptors for a pipe to each worker; output lines of "
               "different workers may be interleaved"
               "\n  tip: raise 'ulimit -n'");
    o->warned = true;
    return 0;
}

/* Copy the size of the console to the pseudo-terminals. */
static void on_winch(evutil_socket_t sig, short what, void *arg)
{
    (void)sig;
    (void)what;
    struct worker_output *o = arg;
    for (int i = 0; i < 2 * o->nlocal; i++)
        if (output_stream_at(o, i)->tty && output_stream_at(o, i)->fd >= 0)
            terminal_copy_size(output_stream_at(o, i)->fd, STDOUT_FILENO + i % 2);
}

static int pipe_open(struct worker_output *o, int file, struct dd_err *err)
{
    struct output_stream *s = output_stream_at(o, file);
    struct dd_err why = {0};
    int rc = output_stream_open(s, o->base, STDOUT_FILENO + file % 2, &why);
    if (rc == -EMFILE && s->plain)
        return inherit_instead(o, s);
    if (rc < 0)
        return dd_err_set(err, rc, "%s", why.text);
    if (!s->tty || o->on_winch != NULL)
        return 0;
    o->on_winch = evsignal_new(o->base, SIGWINCH, on_winch, o);
    return o->on_winch == NULL || event_add(o->on_winch, NULL) < 0 ? no_memory(err) : 0;
}

static int stream_fd(struct worker_output *o, int file, struct dd_err *err)
{
    const struct console_cb cb = {.on_room = on_room, .arg = o};
    struct output_stream *s = output_stream_at(o, file);
    int rc = 0;
    if (s->mode == OUTPUT_FILE)
        s->child_fd = writer_direct(o->writer, file);
    if (s->mode == OUTPUT_FILE && s->child_fd < 0)
        s->mode = OUTPUT_PIPE; /* the file system hangs: the writer waits for it, so that the worker
                                  can start */
    switch (s->mode) {
    case OUTPUT_INHERIT:
        break;
    case OUTPUT_NULL:
        s->child_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        rc = s->child_fd < 0 ? dd_err_set(err, -errno, "cannot open /dev/null: %m") : 0;
        break;
    case OUTPUT_FILE:
        break;
    case OUTPUT_JOIN:
        s->child_fd = fcntl(output_stream_at(o, file - 1)->child_fd, F_DUPFD_CLOEXEC, 3);
        if (s->child_fd < 0)
            s->mode = OUTPUT_INHERIT; /* so is stdout, or no descriptor is left */
        break;
    case OUTPUT_PIPE:
        rc = pipe_open(o, file, err);
        if (rc == 0 && s->path != NULL)
            rc = writer_socket(o->writer, file, err);
        if (rc > 0)
            rc = output_stream_keep(s, o->base, rc, &cb, err);
        break;
    }
    return rc < 0 ? rc : 0;
}

int worker_output_fds(struct worker_output *o, int local_rank, int ret_fds[2], struct dd_err *err)
{
    if (local_rank < 0 || local_rank >= o->nlocal)
        return dd_err_set(err, -EINVAL, "no output configured for local rank %d", local_rank);
    for (int k = 0; k < 2; k++) {
        int rc = stream_fd(o, 2 * local_rank + k, err);
        if (rc < 0)
            return rc;
        ret_fds[k] = o->ranks[local_rank].stream[k].child_fd;
    }
    return 0;
}

void worker_output_given(struct worker_output *o, int local_rank)
{
    for (int k = 0; k < 2 && local_rank < o->nlocal; k++) {
        struct output_stream *s = &o->ranks[local_rank].stream[k];
        if (s->child_fd >= 0)
            close(DD_TAKE_FD(s->child_fd));
    }
}

void worker_output_started(struct worker_output *o)
{
    bool needed = o->watch || o->filter[0] != NULL || o->filter[1] != NULL;
    for (int i = 0; i < 2 * o->nlocal; i++) {
        struct output_stream *s = output_stream_at(o, i);
        if (s->on_read != NULL)
            event_add(s->on_read, NULL);
        needed = needed || s->file != NULL;
    }
    if (!needed)
        writer_free(DD_TAKE(o->writer));
}

void worker_output_catch_up(struct worker_output *o, int local_rank, uint64_t exit_ns)
{
    for (int k = 0; k < 2 && local_rank >= 0 && local_rank < o->nlocal; k++) {
        struct output_stream *s = &o->ranks[local_rank].stream[k];
        output_stream_pump(s, true);
        s->first_ns = s->first_ns < exit_ns ? s->first_ns : exit_ns;
    }
}

void worker_output_abort(struct worker_output *o)
{
    for (int i = 0; i < 2 * o->nlocal; i++)
        output_stream_close(output_stream_at(o, i));
    output_filters_close(o);
    writer_free(DD_TAKE(o->writer));
    o->finishing = o->files_done = o->hangs = false;
    for (int k = 0; k < 2; k++) {
        if (o->fold != NULL)
            output_fold_drop(o->fold, k);
        if (o->console[k] != NULL)
            console_drop(o->console[k]);
    }
    if (o->on_finished != NULL)
        event_del(o->on_finished);
    if (o->on_winch != NULL)
        event_free(DD_TAKE(o->on_winch));
    o->done = NULL;
}

uint64_t worker_output_written(const struct worker_output *o, int local_rank)
{
    uint64_t n = 0;
    for (int k = 0; k < 2 && local_rank >= 0 && local_rank < o->nlocal; k++) {
        const struct output_stream *s = &o->ranks[local_rank].stream[k];
        if (s->mode == OUTPUT_FILE && o->writer != NULL)
            n += writer_size(o->writer, 2 * local_rank + k);
        n += s->taken;
    }
    return n;
}

void worker_output_free(struct worker_output *o)
{
    if (o == NULL)
        return;
    worker_output_abort(o);
    output_ranks_done(o);
    output_fold_free(o->fold);
    if (o->console[1] != o->console[0])
        console_free(o->console[1]);
    console_free(o->console[0]);
    if (o->on_finished != NULL)
        event_free(o->on_finished);
    rank_map_done(&o->redirects);
    rank_map_done(&o->tee);
    rank_map_done(&o->visible);
    free(o->log_dir);
    free(o->tmp_dir);
    free(o->run_id);
    free(o->role);
    free(o->prefix);
    for (int k = 0; k < 2; k++) {
        dd_strv_done(&o->filters[k]);
        free(o->filter_path[k]);
    }
    free(o->run_dir);
    dd_buf_done(&o->tail_text);
    free(o);
}
