#include "worker/output_stream.h"

#include "base/auto.h"
#include "base/io.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, IN_MAX = LINES_MAX + CHUNK, MAX_ROUNDS = 64 };

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void output_stream_init(struct output_stream *s)
{
    *s = (struct output_stream){.child_fd = -1, .fd = -1, .file_fd = -1, .filter_fd = -1, .in = DD_BUF_INIT(IN_MAX)};
}

bool output_stream_closed(const struct output_stream *s)
{
    return s->fd < 0 && s->in.len == 0;
}

static void to_file(struct output_stream *s, const unsigned char *p, size_t n)
{
    int rc = s->file_fd < 0 ? 0 : dd_write_full(s->file_fd, p, n);
    if (rc == 0)
        return;
    errno = -rc;
    dd_log(s->log, DD_LOG_WARN, "cannot write '%s': %m; this output is no longer kept", s->path);
    close_fd(&s->file_fd);
}

/* A line that somebody wants to see without the others. */
static void to_filter(struct output_stream *s, const unsigned char *p, const struct line_piece *piece)
{
    bool wanted = false;
    for (size_t i = 0; s->filter_fd >= 0 && i < s->filters->n && !wanted; i++)
        wanted = memmem(p, piece->len, s->filters->v[i], strlen(s->filters->v[i])) != NULL;
    if (!wanted)
        return;
    DD_AUTO(buf) struct dd_buf line = DD_BUF_INIT(LINES_MAX + CHUNK);
    int rc = dd_buf_append(&line, s->prefix, piece->bare ? 0 : strlen(s->prefix));
    if (rc == 0)
        rc = dd_buf_append(&line, p, piece->len);
    if (rc == 0 && piece->cut)
        rc = dd_buf_append(&line, "\n", 1);
    if (rc == 0) /* in one piece: other workers write there too */
        rc = dd_write_full(s->filter_fd, line.data, line.len);
    if (rc == 0)
        return;
    dd_log(s->log, DD_LOG_WARN, "cannot write the file of filtered lines: %s; it is no longer kept",
           strerror(-rc));
    s->filter_fd = -1;
}

/* Without a label, output goes as it comes. How much of it went. */
static size_t to_console_bare(struct output_stream *s)
{
    size_t n = s->in.len;
    if (n == 0 || console_full(s->console))
        return 0;
    if (console_put(s->console, "", s->in.data, n, false) < 0)
        dd_log(s->log, DD_LOG_WARN, "out of memory: some of a worker's output is lost");
    return n;
}

/* Lines from `in` to the console, while it takes some, and to the file of filtered ones. */
static void to_console(struct output_stream *s)
{
    struct line_piece piece;
    size_t head = 0;
    bool bare = s->console != NULL && s->prefix[0] == '\0' && s->filter_fd < 0;
    if (s->console == NULL && s->filter_fd < 0)
        head = s->in.len;
    else if (bare)
        head = to_console_bare(s);
    while (!bare && head < s->in.len && (s->console == NULL || !console_full(s->console)) &&
           lines_next(&s->lines, s->in.data + head, s->in.len - head, s->eof, &piece)) {
        to_filter(s, s->in.data + head, &piece);
        if (s->console != NULL && console_put(s->console, piece.bare ? "" : s->prefix, s->in.data + head,
                                              piece.len, piece.cut) < 0)
            dd_log(s->log, DD_LOG_WARN, "out of memory: a line of a worker's output is lost");
        head += piece.len;
    }
    dd_buf_consume(&s->in, head);
}

/* 1: something came; 0: nothing is there, or no room for it; -1: the end. */
static int read_some(struct output_stream *s)
{
    if (s->in.len >= LINES_MAX)
        return 0;
    if (dd_buf_reserve(&s->in, CHUNK) < 0)
        return s->draining ? -1 : 0;
    unsigned char *p = s->in.data + s->in.len;
    ssize_t n = read(s->fd, p, CHUNK);
    if (n < 0 && errno == EINTR)
        return 1;
    if (n < 0 && errno == EAGAIN)
        return s->draining ? -1 : 0;
    if (n <= 0)
        return -1;
    to_file(s, p, (size_t)n);
    tail_add(&s->tail, p, (size_t)n);
    s->in.len += (size_t)n;
    s->taken += (uint64_t)n;
    return 1;
}

static void end_reading(struct output_stream *s)
{
    s->eof = true;
    if (s->on_read != NULL)
        event_free(s->on_read);
    s->on_read = NULL;
    close_fd(&s->fd);
    close_fd(&s->file_fd);
}

static bool is_full(const struct output_stream *s)
{
    return s->console != NULL && console_full(s->console);
}

void output_stream_pump(struct output_stream *s, bool all)
{
    for (int round = 0; round < MAX_ROUNDS || s->draining; round++) {
        to_console(s);
        if (is_full(s))
            console_flush(s->console); /* may lose the console */
        if (s->fd < 0 || (is_full(s) && !all) || (round > 0 && !all && !s->draining))
            break; /* others wait too */
        int rc = read_some(s);
        if (rc < 0)
            end_reading(s);
        if (rc == 0)
            break;
    }
    if (s->console != NULL)
        console_flush(s->console);
    if (is_full(s))
        console_wait(s->console);
    if (s->on_read == NULL)
        return;
    if (is_full(s) || s->draining)
        event_del(s->on_read);
    else
        event_add(s->on_read, NULL);
}

static void on_read(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    output_stream_pump(arg, false);
}

int output_stream_open(struct output_stream *s, struct event_base *base, struct dd_err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot make a pipe for the output of a worker: %m");
    s->fd = fds[0];
    s->child_fd = fds[1];
    int rc = dd_fd_nonblock(s->fd);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot make a pipe for the output of a worker");
    s->on_read = event_new(base, s->fd, EV_READ | EV_PERSIST, on_read, s);
    return s->on_read == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

void output_stream_lose_console(struct output_stream *s)
{
    bool keep = s->file_fd >= 0;
    s->console = NULL;
    s->filter_fd = -1;
    dd_buf_clear(&s->in);
    if (s->mode == OUTPUT_PIPE && !keep)
        end_reading(s); /* the worker sees EPIPE */
    else if (s->on_read != NULL)
        event_add(s->on_read, NULL);
}

void output_stream_close(struct output_stream *s)
{
    end_reading(s);
    close_fd(&s->child_fd);
    dd_buf_done(&s->in);
}

void output_stream_done(struct output_stream *s)
{
    output_stream_close(s);
    free(s->path);
    free(s->prefix);
    tail_done(&s->tail);
    output_stream_init(s);
}
