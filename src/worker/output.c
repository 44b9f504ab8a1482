#include "worker/output.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/aside.h"
#include "worker/console.h"
#include "worker/output_dirs.h"
#include "worker/output_stream.h"
#include "worker/output_text.h"
#include "worker/ranks.h"
#include "worker/writer.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAIL_TEXT_MAX (2 * TAIL_BYTES)
enum { OPEN_MS = 1500 }; /* below the heartbeat: for the file system of the logs */

static const char *const file_names[2] = {"stdout.log", "stderr.log"};
static const char *const filtered_names[2] = {"filtered_stdout.log", "filtered_stderr.log"};

struct output_rank {
    struct output_stream stream[2]; /* stdout, stderr */
    char *error_file;
    int rank;
};

struct worker_output {
    struct event_base *base;
    const struct dd_log *log;
    struct rank_map redirects, tee, visible;
    char *log_dir; /* NULL: none was given, or there shall be no files */
    char *tmp_dir;
    char *run_id;
    char *role;
    char *prefix; /* template; NULL: the usual one */
    struct dd_strv filters[2];
    char *filter_path[2]; /* of this attempt; NULL: none */
    int filter_fd[2];     /* -1: none */
    struct console *filter[2];
    struct writer *writer; /* of this attempt's files; NULL: none */
    bool finishing;        /* it has been told that there is no more */
    bool files_done;
    bool hangs; /* a log file could not be read in time: not asked again */
    char *run_dir; /* of this run; NULL: no files */
    bool no_files; /* --log-dir=/dev/null */
    bool label;
    bool watch;
    int attempt;
    struct console *console[2]; /* [1] may be the same as [0] */
    struct output_rank *ranks;
    int nlocal;
    struct dd_buf tail_text;
    /* worker_output_finish() */
    struct event *on_finished; /* also its time limit */
    void (*done)(void *arg);
    void *done_arg;
    unsigned limit_ms;
    uint64_t written; /* when the limit was set */
};

DD_AUTO_DEFINE(output, struct worker_output *, worker_output_free);

static int no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

static struct output_stream *stream_at(struct worker_output *o, int i)
{
    return &o->ranks[i / 2].stream[i % 2];
}

static bool all_through(struct worker_output *o)
{
    bool done = console_empty(o->console[0]) && console_empty(o->console[1]);
    for (int k = 0; k < 2; k++)
        done = done && (o->filter[k] == NULL || console_empty(o->filter[k]));
    for (int i = 0; i < 2 * o->nlocal; i++)
        done = done && output_stream_closed(stream_at(o, i));
    return done;
}

/* Bytes that have left this process. */
static uint64_t written(struct worker_output *o)
{
    uint64_t n = console_written(o->console[0]) + console_written(o->console[1]);
    for (int i = 0; i < 2 * o->nlocal; i++)
        n += stream_at(o, i)->file != NULL ? console_written(stream_at(o, i)->file) : 0;
    return n;
}

static void filters_close(struct worker_output *o)
{
    for (int k = 0; k < 2; k++) {
        console_free(DD_TAKE(o->filter[k]));
        if (o->filter_fd[k] >= 0)
            close(DD_TAKE_FD(o->filter_fd[k]));
    }
}

/* All that was read is with the writer; now it must get it into the files. */
static void finish_files(struct worker_output *o)
{
    o->finishing = true;
    for (int i = 0; i < 2 * o->nlocal; i++)
        output_stream_close(stream_at(o, i));
    filters_close(o);
    writer_finish(o->writer);
}

static void finish_check(struct worker_output *o)
{
    if (o->done == NULL)
        return;
    bool through = all_through(o);
    if (through && o->writer != NULL && !o->finishing)
        finish_files(o);
    if (through && (o->writer == NULL || o->files_done))
        event_active(o->on_finished, EV_READ, 0); /* not from here: the caller is at work */
    struct console *const to[] = {o->console[0], o->console[1], o->filter[0], o->filter[1]};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        if (to[i] != NULL && !console_empty(to[i]))
            console_wait(to[i]);
    for (int i = 0; i < 2 * o->nlocal; i++)
        if (stream_at(o, i)->file != NULL && !console_empty(stream_at(o, i)->file))
            console_wait(stream_at(o, i)->file);
}

static void on_files_done(void *arg)
{
    struct worker_output *o = arg;
    o->files_done = true;
    finish_check(o);
}

/* A console takes something again. */
static void on_room(void *arg)
{
    struct worker_output *o = arg;
    for (int i = 0; i < 2 * o->nlocal; i++)
        output_stream_pump(stream_at(o, i), false);
    finish_check(o);
}

static void on_broken(void *arg)
{
    struct worker_output *o = arg;
    for (int i = 0; i < 2 * o->nlocal; i++) {
        struct output_stream *s = stream_at(o, i);
        if (s->console != NULL && console_broken(s->console))
            output_stream_lose_console(s);
    }
    finish_check(o);
}

static void limit_set(struct worker_output *o)
{
    struct timeval tv = dd_timeval(o->limit_ms * DD_NS_PER_MS);
    o->written = written(o);
    if (o->limit_ms > 0)
        event_add(o->on_finished, &tv);
}

static void on_finished(evutil_socket_t fd, short what, void *arg)
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
                   ? "the file system of the logs takes no output; the last lines are lost there"
                   : "the terminal or pipe takes no output; the last lines are lost");
    } else if (!through) {
        return;
    }
    void (*done)(void *done_arg) = o->done;
    void *done_arg = o->done_arg;
    worker_output_abort(o);
    done(done_arg);
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

static int copy(char **ret, const char *s, struct dd_err *err)
{
    *ret = s == NULL ? NULL : strdup(s);
    return s != NULL && *ret == NULL ? no_memory(err) : 0;
}

/* NULL and "" are the same for options. */
static const char *given(const char *s)
{
    return s == NULL || *s == '\0' ? NULL : s;
}

static int options_take(struct worker_output *o, const struct output_spec *spec, struct dd_err *err)
{
    int rc = rank_map_parse(&o->redirects, spec->redirects, "--redirects", err);
    if (rc == 0)
        rc = rank_map_parse(&o->tee, spec->tee, "--tee", err);
    if (rc == 0)
        rc = rank_list_parse(&o->visible, spec->local_ranks_filter, "--local-ranks-filter", err);
    o->label = spec->label;
    o->watch = spec->watch;
    o->log = spec->log;
    const char *dir = given(spec->log_dir);
    o->no_files = dir != NULL && strcmp(dir, "/dev/null") == 0;
    if (rc == 0)
        rc = copy(&o->log_dir, o->no_files ? NULL : dir, err);
    if (rc == 0)
        rc = copy(&o->tmp_dir, given(spec->tmp_dir), err);
    if (rc == 0)
        rc = copy(&o->run_id, spec->run_id, err);
    if (rc == 0)
        rc = copy(&o->role, given(spec->role) == NULL ? "default" : spec->role, err);
    if (rc == 0)
        rc = copy(&o->prefix, given(spec->prefix), err);
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = output_filters_split(&o->filters[k], spec->filters[k]) < 0 ? no_memory(err) : 0;
    return rc;
}

/* Only lines that pass through the agent can be looked at. */
static bool any_filter(const struct worker_output *o)
{
    return rank_map_any(&o->tee) && o->filters[0].n + o->filters[1].n > 0;
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
    int rc = options_take(o, spec, err);
    if (rc < 0)
        return rc;
    *ret = NULL;
    bool filtered = o->visible.n > 0;
    if (!o->label && !o->watch && !filtered && o->log_dir == NULL && !rank_map_any(&o->redirects) &&
        !rank_map_any(&o->tee))
        return 0;
    o->on_finished = event_new(base, -1, 0, on_finished, o);
    if (o->on_finished == NULL)
        return no_memory(err);
    rc = consoles_open(o, err);
    /* made now: a directory that cannot be made is an error of the command, not of a worker */
    if (rc == 0 && (o->log_dir != NULL || (!o->no_files && (rank_map_any(&o->redirects) || any_filter(o)))))
        rc = output_run_dir(&o->run_dir, o->log_dir, o->tmp_dir, o->run_id, err);
    if (rc == 0 && o->run_dir != NULL && o->log_dir == NULL) /* else nobody would know where */
        dd_log(o->log, DD_LOG_NOTICE, "output that goes to files is in '%s'", o->run_dir);
    if (rc == 0)
        *ret = DD_TAKE(o);
    return rc;
}

/* What becomes of one stream of a worker. */
static void stream_plan(const struct worker_output *o, struct output_stream *s, int local_rank,
                        int bit)
{
    bool tee = (rank_map_get(&o->tee, local_rank) & bit) != 0;
    bool redirect = (rank_map_get(&o->redirects, local_rank) & bit) != 0 && !tee;
    bool file = (tee || redirect) && o->run_dir != NULL;
    bool shown = !redirect && rank_map_get(&o->visible, local_rank) != 0;
    if (!shown)
        s->mode = file ? OUTPUT_FILE : o->watch ? OUTPUT_PIPE : OUTPUT_NULL;
    else
        s->mode = tee || o->label || o->watch ? OUTPUT_PIPE : OUTPUT_INHERIT;
    s->console = s->mode == OUTPUT_PIPE && shown ? o->console[bit == OUTPUT_STDERR] : NULL;
    s->log = o->log;
}

static int prefix_make(char **ret, const struct worker_output *o, int rank, int local_rank)
{
    if (o->label)
        return asprintf(ret, "[%d]: ", rank) < 0 ? -ENOMEM : 0;
    if (o->prefix != NULL)
        return output_prefix_fill(ret, o->prefix, o->role, rank, local_rank);
    return asprintf(ret, "[%s%d]:", o->role, local_rank) < 0 ? -ENOMEM : 0;
}

static int rank_begin(struct worker_output *o, int i, int rank)
{
    struct output_rank *r = &o->ranks[i];
    r->rank = rank;
    output_stream_init(&r->stream[0]);
    output_stream_init(&r->stream[1]);
    for (int k = 0; k < 2; k++) {
        struct output_stream *s = &r->stream[k];
        int bit = k == 0 ? OUTPUT_STDOUT : OUTPUT_STDERR;
        stream_plan(o, s, i, bit);
        bool tee = (rank_map_get(&o->tee, i) & bit) != 0;
        bool file = s->mode == OUTPUT_FILE || (s->mode == OUTPUT_PIPE && tee && o->run_dir != NULL);
        if (file && output_path(&s->path, o->run_dir, o->attempt, i, file_names[k]) < 0)
            return -ENOMEM;
        bool named = o->label || tee;
        int rc = 0;
        if (named)
            rc = prefix_make(&s->prefix, o, rank, i);
        else if ((s->prefix = strdup("")) == NULL)
            rc = -ENOMEM;
        if (rc < 0) {
            s->prefix = NULL;
            return rc;
        }
        s->filters = &o->filters[k];
        s->filter = NULL;
    }
    return o->run_dir == NULL
               ? 0
               : output_path(&r->error_file, o->run_dir, o->attempt, i, "error.json");
}

static void ranks_done(struct worker_output *o)
{
    for (int i = 0; i < o->nlocal; i++) {
        output_stream_done(&o->ranks[i].stream[0]);
        output_stream_done(&o->ranks[i].stream[1]);
        free(o->ranks[i].error_file);
    }
    free(o->ranks);
    o->ranks = NULL;
    o->nlocal = 0;
}

static int filters_begin(struct worker_output *o)
{
    for (int k = 0; k < 2; k++) {
        free(DD_TAKE(o->filter_path[k]));
        if (o->run_dir != NULL && o->filters[k].n > 0 &&
            asprintf(&o->filter_path[k], "%s/attempt_%d/%s", o->run_dir, o->attempt, filtered_names[k]) < 0) {
            o->filter_path[k] = NULL;
            return -ENOMEM;
        }
    }
    return 0;
}

static int make_dirs(void *arg, struct dd_err *err)
{
    const struct worker_output *o = arg;
    return output_attempt_dirs(o->run_dir, o->attempt, o->nlocal, err);
}

/* The queue in front of a file of filtered lines, which all streams of that kind share. */
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

/* Folders and files of this attempt. The writer has a number for each: 2 * local rank, 1 more for stderr,
 * and behind these the filtered ones. */
static int files_begin(struct worker_output *o, struct dd_err *err)
{
    int n = 2 * o->nlocal + 2;
    if (o->run_dir == NULL)
        return 0;
    DD_AUTO(free) struct writer_file *files = calloc((size_t)n, sizeof(*files));
    if (files == NULL)
        return no_memory(err);
    for (int i = 0; i < n - 2; i++)
        files[i] = (struct writer_file){.path = stream_at(o, i)->path,
                                        .direct = stream_at(o, i)->mode == OUTPUT_FILE};
    for (int k = 0; k < 2; k++)
        files[n - 2 + k].path = o->filter_path[k];
    const struct writer_spec spec = {.prepare = make_dirs,
                                     .files = files,
                                     .n = n,
                                     .limit_ms = OPEN_MS,
                                     .log = o->log,
                                     .on_end = on_files_done,
                                     .arg = o};
    int rc = writer_new(&o->writer, o->base, &spec, err);
    for (int k = 0; k < 2 && rc == 0; k++)
        if (o->filter_path[k] != NULL)
            rc = filter_open(o, k, err);
    return rc;
}

int worker_output_begin(struct worker_output *o, int attempt, const int *ranks, int nlocal,
                        struct dd_err *err)
{
    int rc = 0;
    worker_output_abort(o);
    ranks_done(o);
    o->attempt = attempt > o->attempt ? attempt : o->attempt + 1;
    o->ranks = calloc((size_t)nlocal, sizeof(*o->ranks));
    if (o->ranks == NULL)
        return no_memory(err);
    for (; o->nlocal < nlocal && rc == 0; o->nlocal++)
        rc = rank_begin(o, o->nlocal, ranks[o->nlocal]);
    if (rc == 0)
        rc = filters_begin(o);
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
    const char *path = local_rank >= 0 && local_rank < o->nlocal ? o->ranks[local_rank].stream[1].path : NULL;
    return path != NULL ? path : "";
}

/* The end of a file that the worker wrote itself. */
static void tail_read(struct worker_output *o, struct tail *t, const char *path)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(1 << 20);
    if (o->hangs)
        return;
    o->hangs = aside_read_end(path, TAIL_BYTES, &text) == -ETIMEDOUT;
    if (text.len > 0)
        tail_add(t, text.data, text.len);
}

const char *worker_output_tail(struct worker_output *o, int local_rank)
{
    if (local_rank < 0 || local_rank >= o->nlocal)
        return "";
    struct output_stream *s = &o->ranks[local_rank].stream[1];
    struct tail t = {0};
    if (s->mode == OUTPUT_FILE)
        tail_read(o, &t, s->path);
    dd_buf_clear(&o->tail_text);
    int rc = tail_format(s->mode == OUTPUT_FILE ? &t : &s->tail, &o->tail_text);
    tail_done(&t);
    const char *text = rc < 0 ? NULL : dd_buf_str(&o->tail_text);
    return text == NULL ? "" : text;
}

static int stream_fd(struct worker_output *o, int file, struct dd_err *err)
{
    const struct console_cb cb = {.on_room = on_room, .arg = o};
    struct output_stream *s = stream_at(o, file);
    int rc = 0;
    if (s->mode == OUTPUT_FILE)
        s->child_fd = writer_direct(o->writer, file);
    if (s->mode == OUTPUT_FILE && s->child_fd < 0)
        s->mode = OUTPUT_PIPE; /* its file system hangs: the writer waits for it, not the worker's start */
    switch (s->mode) {
    case OUTPUT_INHERIT:
        break;
    case OUTPUT_NULL:
        s->child_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
        rc = s->child_fd < 0 ? dd_err_set(err, -errno, "cannot open /dev/null: %m") : 0;
        break;
    case OUTPUT_FILE:
        break;
    case OUTPUT_PIPE:
        rc = output_stream_open(s, o->base, err);
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
        return dd_err_set(err, -EINVAL, "no output was prepared for local rank %d", local_rank);
    for (int k = 0; k < 2; k++) {
        int rc = stream_fd(o, 2 * local_rank + k, err);
        if (rc < 0)
            return rc;
        ret_fds[k] = o->ranks[local_rank].stream[k].child_fd;
    }
    return 0;
}

void worker_output_started(struct worker_output *o)
{
    bool needed = o->watch || o->filter[0] != NULL || o->filter[1] != NULL;
    for (int i = 0; i < 2 * o->nlocal; i++) {
        struct output_stream *s = stream_at(o, i);
        if (s->child_fd >= 0)
            close(s->child_fd);
        s->child_fd = -1;
        if (s->on_read != NULL)
            event_add(s->on_read, NULL);
        needed = needed || s->file != NULL;
    }
    if (!needed)
        writer_free(DD_TAKE(o->writer));
}

void worker_output_catch_up(struct worker_output *o, int local_rank)
{
    if (local_rank >= 0 && local_rank < o->nlocal)
        for (int k = 0; k < 2; k++)
            output_stream_pump(&o->ranks[local_rank].stream[k], true);
}

void worker_output_finish(struct worker_output *o, unsigned limit_ms, void (*done)(void *arg),
                          void *arg)
{
    o->done = done;
    o->done_arg = arg;
    o->limit_ms = limit_ms;
    limit_set(o);
    for (int i = 0; i < 2 * o->nlocal; i++) {
        stream_at(o, i)->draining = true;
        output_stream_pump(stream_at(o, i), false);
    }
    finish_check(o);
}

void worker_output_abort(struct worker_output *o)
{
    for (int i = 0; i < 2 * o->nlocal; i++)
        output_stream_close(stream_at(o, i));
    filters_close(o);
    writer_free(DD_TAKE(o->writer));
    o->finishing = o->files_done = o->hangs = false;
    for (int k = 0; k < 2; k++)
        if (o->console[k] != NULL)
            console_drop(o->console[k]);
    if (o->on_finished != NULL)
        event_del(o->on_finished);
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
    ranks_done(o);
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
