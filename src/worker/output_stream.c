#include "worker/output_stream.h"

#include "worker/output_fold.h"
#include "worker/output_text.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/terminal.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    FIRST = 4096,
    CHUNK = 64 * 1024,
    IN_MAX = LINES_MAX + CHUNK,
    MAX_ROUNDS = 64,
    SPARE_FDS = 64
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void output_stream_init(struct output_stream *s)
{
    *s = (struct output_stream){.child_fd = -1, .fd = -1, .file_fd = -1, .in = DD_BUF_INIT(IN_MAX)};
}

bool output_stream_closed(const struct output_stream *s)
{
    return s->fd < 0 && s->in.len == 0 && (s->file == NULL || console_empty(s->file));
}

static void put(struct output_stream *s, struct console *c, const char *prefix, const void *p,
                size_t n, bool cut)
{
    const int rc = c != NULL ? console_put(c, prefix, p, n, cut) : 0;
    if (rc < 0)
        dd_log(s->log, DD_LOG_WARN,
               "cannot queue output of local rank %d, some of which is lost: %s", s->local_rank,
               rc == -EMSGSIZE ? "the queue is full" : "out of memory");
}

/* True if a destination is full: its reader is slow, or its file system hangs. */
static bool is_full(const struct output_stream *s)
{
    struct console *const to[] = {s->console, s->file, s->filter};
    bool full = false;
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        full = full || (to[i] != NULL && console_full(to[i]));
    return full;
}

/* Flush the file first: lines that a user has seen must be in the file, even if this process is
 * killed now. */
static void flush(const struct output_stream *s)
{
    struct console *const to[] = {s->file, s->filter, s->console};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        if (to[i] != NULL)
            console_flush(to[i]);
}

static void wait_for_room(const struct output_stream *s)
{
    struct console *const to[] = {s->console, s->file, s->filter};
    for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
        if (to[i] != NULL && console_full(to[i]))
            console_wait(to[i]);
}

/* Copy a line that matches a filter to the file of filtered lines. */
static void to_filter(struct output_stream *s, const unsigned char *p,
                      const struct line_piece *piece)
{
    if (s->filter != NULL && output_filters_match(s->filters, p, piece->len))
        put(s, s->filter, piece->bare ? "" : s->prefix, p, piece->len, piece->cut);
}

/* Write output whose lines need no label, filter or folding: everything if `bare`, else all
 * complete lines. Return how many bytes were written. */
static size_t to_console_at_once(struct output_stream *s)
{
    size_t n = s->bare ? s->in.len : lines_whole(s->in.data, s->in.len);
    if (n == 0 || console_full(s->console))
        return 0;
    if (!s->bare)
        console_end_line(s->console);
    put(s, s->console, "", s->in.data, n, false);
    s->lines = (struct lines){0};
    return n;
}

static void line_to_console(struct output_stream *s, const unsigned char *p,
                            const struct line_piece *piece)
{
    if (s->console == NULL)
        return;
    if (s->fold != NULL) {
        if (!piece->bare)
            output_fold_line(s->fold, s->number, s->local_rank, p, piece->len);
        return;
    }
    if (!piece->bare)
        console_end_line(s->console);
    put(s, s->console, piece->bare ? "" : s->prefix, p, piece->len, piece->cut);
}

/* Write lines from `in` to the console while it has room, and to the file of filtered lines. */
static void to_console(struct output_stream *s)
{
    struct line_piece piece;
    size_t head = 0;
    if (s->console == NULL && s->filter == NULL)
        head = s->in.len;
    else if (s->console != NULL && s->fold == NULL && s->prefix[0] == '\0' && s->filter == NULL)
        head = to_console_at_once(s);
    while (!s->bare && head < s->in.len && !is_full(s) &&
           lines_next(&s->lines, s->in.data + head, s->in.len - head, s->eof, &piece)) {
        to_filter(s, s->in.data + head, &piece);
        line_to_console(s, s->in.data + head, &piece);
        head += piece.len;
    }
    dd_buf_consume(&s->in, head);
}

/* Return 1: data was read; 0: no data, or no room for it; -1: end. */
static int read_some(struct output_stream *s)
{
    if (s->in.len >= LINES_MAX)
        return 0;
    const size_t room = s->taken == 0 ? FIRST : CHUNK; /* many workers write nothing, or a line */
    if (dd_buf_reserve(&s->in, room) < 0)
        return s->draining ? -1 : 0;
    unsigned char *p = s->in.data + s->in.len;
    ssize_t n = read(s->fd, p, room);
    if (n < 0 && errno == EINTR)
        return 1;
    if (n < 0 && errno == EAGAIN)
        return s->draining ? -1 : 0;
    if (n <= 0)
        return -1;
    put(s, s->file, "", p, (size_t)n, false);
    tail_add(&s->tail, p, (size_t)n);
    if (s->steps != NULL)
        step_lines_feed(s->steps, s->number, p, (size_t)n);
    s->in.len += (size_t)n;
    s->last_ns = dd_now_ns();
    if (s->first_ns == 0)
        s->first_ns = s->last_ns;
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
    if (s->in.len == 0)
        dd_buf_done(&s->in); /* usual; leaves the memory to other streams */
}

void output_stream_pump(struct output_stream *s, bool all)
{
    for (int round = 0; round < MAX_ROUNDS || s->draining; round++) {
        to_console(s);
        if (is_full(s))
            flush(s); /* the flush may find that the console is lost */
        if (s->fd < 0 || (is_full(s) && !all) || (round > 0 && !all && !s->draining))
            break; /* let other streams continue */
        int rc = read_some(s);
        if (rc < 0)
            end_reading(s);
        if (rc == 0)
            break;
    }
    flush(s);
    wait_for_room(s);
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

int output_stream_keep(struct output_stream *s, struct event_base *base, int fd,
                       const struct console_cb *cb, struct dd_err *err)
{
    s->file_fd = fd;
    int rc = console_new(&s->file, base, fd, s->log, cb, err);
    if (rc == 0)
        console_alone(s->file);
    return rc;
}

static bool too_few_left(int fd)
{
    struct rlimit most;
    return getrlimit(RLIMIT_NOFILE, &most) == 0 && (rlim_t)fd + SPARE_FDS >= most.rlim_cur;
}

int output_stream_open(struct output_stream *s, struct event_base *base, int like,
                       struct dd_err *err)
{
    int fds[2];
    if (s->tty && terminal_pair(fds, like) < 0)
        s->tty = false; /* /dev/pts is not available */
    if (!s->tty && pipe2(fds, O_CLOEXEC) < 0)
        return dd_err_set(err, -errno, "cannot create a pipe for the output of local rank %d: %m",
                          s->local_rank);
    s->fd = fds[0];
    s->child_fd = fds[1];
    int rc = s->plain && too_few_left(fds[1]) ? -EMFILE : dd_fd_nonblock(s->fd);
    if (rc < 0)
        return dd_err_set(err, rc, "cannot use a pipe for the output of local rank %d: %s",
                          s->local_rank, strerror(-rc));
    s->on_read = event_new(base, s->fd, EV_READ | EV_PERSIST, on_read, s);
    return s->on_read == NULL ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

void output_stream_lose_console(struct output_stream *s)
{
    bool keep = s->file != NULL && !console_broken(s->file);
    s->console = NULL;
    s->filter = NULL;
    dd_buf_clear(&s->in);
    if (s->mode == OUTPUT_PIPE && !keep)
        end_reading(s); /* the worker gets EPIPE */
    else if (s->on_read != NULL)
        event_add(s->on_read, NULL);
}

void output_stream_close(struct output_stream *s)
{
    end_reading(s);
    console_free(DD_TAKE(s->file));
    close_fd(&s->file_fd);
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
