#include "worker/console.h"

#include "base/auto.h"
#include "base/io.h"
#include "base/screen.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The queue is full from HIGH bytes on, and has room again below LOW. It may exceed HIGH, since a
 * caller checks before it adds lines. */
enum { HIGH = 256 * 1024, LOW = HIGH / 2, QUEUE_MAX = 4 * 1024 * 1024 };

enum console_kind {
    CONSOLE_PLAIN,    /* a file: a write does not block for long */
    CONSOLE_SOCKET,   /* uses MSG_DONTWAIT */
    CONSOLE_NONBLOCK, /* a pipe or terminal, reopened for this process alone */
    CONSOLE_POLLED,   /* cannot be reopened: poll, then write at most PIPE_BUF */
};

struct console {
    enum console_kind kind;
    int fd;
    int own_fd; /* reopened descriptor of CONSOLE_NONBLOCK; -1: another kind */
    const struct dd_log *log;
    struct console_cb cb;
    struct event *on_writable; /* NULL for files */
    struct event *on_room;
    struct dd_buf queue;
    size_t head; /* bytes of queue that have been written */
    uint64_t written;
    bool terminal;
    bool mid_line; /* the last byte put was not the end of a line */
    bool alone;    /* no other process writes to fd: pieces of any size may be written */
    bool waited;   /* on_room is to be called when there is room */
    bool broken;
    bool warned;
};

DD_AUTO_DEFINE(console, struct console *, console_free);

static size_t pending(const struct console *c)
{
    return c->queue.len - c->head;
}

bool console_full(const struct console *c)
{
    return pending(c) >= HIGH;
}

bool console_empty(const struct console *c)
{
    return pending(c) == 0;
}

bool console_broken(const struct console *c)
{
    return c->broken;
}

uint64_t console_written(const struct console *c)
{
    return c->written;
}

bool console_same(int fd_a, int fd_b)
{
    struct stat a, b;
    return fstat(fd_a, &a) == 0 && fstat(fd_b, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

void console_alone(struct console *c)
{
    c->alone = true;
}

bool console_is_terminal(const struct console *c)
{
    struct winsize size = {0};
    return c->terminal &&
           (tcgetpgrp(c->fd) >= 0 || (ioctl(c->fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0));
}

static void kind_find(struct console *c, int fd)
{
    struct stat st;
    char path[40];
    c->fd = fd;
    c->own_fd = -1;
    c->terminal = isatty(fd);
    if (fstat(fd, &st) < 0)
        return;
    if (S_ISSOCK(st.st_mode))
        c->kind = CONSOLE_SOCKET;
    if (!S_ISFIFO(st.st_mode) && !c->terminal)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    c->own_fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    c->kind = c->own_fd < 0 ? CONSOLE_POLLED : CONSOLE_NONBLOCK;
    c->fd = c->own_fd < 0 ? fd : c->own_fd;
}

/* Return how much to write at once: whole lines, and at most what a pipe takes atomically if they
 * fit, so that lines stay whole even if other processes write to the same pipe. Src: pipe(7),
 * PIPE_BUF. */
static size_t batch(const unsigned char *p, size_t n)
{
    if (n <= PIPE_BUF)
        return n;
    for (size_t i = PIPE_BUF; i > 0; i--)
        if (p[i - 1] == '\n' || p[i - 1] == '\r')
            return i;
    const unsigned char *end = memchr(p, '\n', n);
    return end == NULL ? n : (size_t)(end - p) + 1;
}

static ssize_t write_some(struct console *c)
{
    const unsigned char *p = c->queue.data + c->head;
    size_t n = c->kind == CONSOLE_PLAIN || c->alone ? pending(c) : batch(p, pending(c));
    if (c->kind == CONSOLE_SOCKET)
        return send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (c->kind == CONSOLE_POLLED) {
        struct pollfd pfd = {.fd = c->fd, .events = POLLOUT};
        if (poll(&pfd, 1, 0) <= 0) {
            errno = EAGAIN;
            return -1;
        }
        n = n < PIPE_BUF ? n : PIPE_BUF;
    }
    return write(c->fd, p, n);
}

/* Return 0: try again; 1: nothing can be written now. */
static int write_failed(struct console *c)
{
    if (errno == EINTR)
        return 0;
    if (errno == EAGAIN && c->on_writable != NULL)
        return 1;
    c->broken = c->kind != CONSOLE_PLAIN; /* EPIPE, or EIO of a terminal that has been closed */
    if (!c->broken && !c->warned)
        dd_log(c->log, DD_LOG_WARN,
               "cannot write to %s, so output of the workers is lost there: %m",
               c->fd == STDERR_FILENO ? "stderr" : "stdout");
    c->warned = true;
    console_drop(c);
    return 1;
}

static struct dd_screen *console_screen(const struct console *c)
{
    return c->terminal && c->log != NULL ? c->log->screen : NULL;
}

static void write_pending(struct console *c)
{
    while (pending(c) > 0) {
        ssize_t n = write_some(c);
        if (n < 0 && write_failed(c) != 0)
            break;
        if (n > 0) {
            c->head += (size_t)n;
            c->written += (uint64_t)n;
        }
    }
}

static void write_all(struct console *c)
{
    struct dd_screen *screen = console_screen(c);
    if (pending(c) > 0) {
        if (dd_screen_begin(screen)) /* otherwise on_writable tries again */
            write_pending(c);
        dd_screen_end(screen);
    }
    if (pending(c) == 0)
        console_drop(c);
    else if (c->head > HIGH) {
        dd_buf_consume(&c->queue, c->head);
        c->head = 0;
    }
}

/* Call on_room from the loop: the caller of a flush is still changing its state. */
static void room_soon(struct console *c)
{
    event_active(c->on_room, EV_WRITE, 0);
}

static void on_room(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct console *c = arg;
    if (c->broken || !c->waited || pending(c) >= LOW)
        return;
    c->waited = false;
    if (c->cb.on_room != NULL)
        c->cb.on_room(c->cb.arg);
}

void console_wait(struct console *c)
{
    c->waited = true;
    if (pending(c) == 0)
        room_soon(c);
}

void console_flush(struct console *c)
{
    if (c->broken)
        return;
    write_all(c);
    if (pending(c) > 0)
        event_add(c->on_writable, NULL);
    if (c->waited && pending(c) < LOW)
        room_soon(c);
    if (c->broken && c->cb.on_broken != NULL)
        c->cb.on_broken(c->cb.arg);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    console_flush(arg);
}

int console_put(struct console *c, const char *prefix, const void *text, size_t len, bool cut)
{
    if (c->broken)
        return 0;
    size_t before = c->queue.len;
    int rc = dd_buf_puts(&c->queue, prefix);
    rc = rc == 0 ? dd_buf_append(&c->queue, text, len) : rc;
    rc = rc == 0 && cut ? dd_buf_append(&c->queue, "\n", 1) : rc;
    if (rc == 0) {
        unsigned char last = c->queue.len > before ? c->queue.data[c->queue.len - 1] : '\n';
        c->mid_line = last != '\n' && last != '\r';
        return 0;
    }
    c->queue.len = before; /* put the line completely or not at all */
    return rc;
}

void console_end_line(struct console *c)
{
    if (c->mid_line)
        (void)console_put(c, "", "\n", 1, false);
}

void console_drop(struct console *c)
{
    dd_buf_clear(&c->queue);
    c->head = 0;
    if (c->on_writable != NULL)
        event_del(c->on_writable);
}

int console_new(struct console **ret, struct event_base *base, int fd, const struct dd_log *log,
                const struct console_cb *cb, struct dd_err *err)
{
    DD_AUTO(console) struct console *c = calloc(1, sizeof(*c));
    if (c == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    c->log = log;
    c->cb = *cb;
    c->queue = DD_BUF_INIT(QUEUE_MAX);
    kind_find(c, fd);
    c->on_room = event_new(base, -1, 0, on_room, c);
    if (c->kind != CONSOLE_PLAIN)
        c->on_writable = event_new(base, c->fd, EV_WRITE, on_writable, c);
    if (c->on_room == NULL || (c->kind != CONSOLE_PLAIN && c->on_writable == NULL))
        return dd_err_set(err, -ENOMEM, "out of memory");
    *ret = DD_TAKE(c);
    return 0;
}

void console_free(struct console *c)
{
    if (c == NULL)
        return;
    if (c->on_writable != NULL)
        event_free(c->on_writable);
    if (c->on_room != NULL)
        event_free(c->on_room);
    if (c->own_fd >= 0)
        close(c->own_fd);
    dd_buf_done(&c->queue);
    free(c);
}
