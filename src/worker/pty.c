#include "worker/pty.h"

#include "base/auto.h"
#include "base/io.h"
#include "worker/console.h"
#include "worker/output.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK = 4096,
    IN_MAX = 2 * CHUNK,
    REST_MS = 200,  /* after the worker's exit: stop reading after this time without output */
    TAKE_MS = 1000, /* limit for a blocked stdout: the leader expects heartbeats */
};

struct pty {
    const struct terminal *outer;
    const struct dd_log *log;
    bool alone;
    int master;
    int slave; /* kept open until the end, so that reading from the master never fails earlier */
    char path[64];
    struct event *on_out, *on_in, *on_writable, *on_winch, *on_cont;
    bool eof;        /* stdin is at its end */
    bool in_by_poll; /* stdin can be polled; a regular file cannot */
    bool mid_line;
    struct dd_buf in;
    struct console *console;
    uint64_t written;
    struct worker_output *out; /* keeps the last lines of local_rank; NULL: none */
    int local_rank;
};

DD_AUTO_DEFINE(pty, struct pty *, pty_free);

/* ---- the worker's output ---- */

/* Pass on what one read() returns. Return false if it returns nothing, or if stdout is full. */
static bool take_output(struct pty *p)
{
    char text[CHUNK];
    if (console_full(p->console)) {
        event_del(p->on_out);
        console_wait(p->console);
        return false;
    }
    ssize_t n = read(p->master, text, sizeof(text));
    if (n <= 0)
        return n < 0 && errno == EINTR;
    p->written += (uint64_t)n;
    if (p->out != NULL)
        worker_output_keep(p->out, p->local_rank, text, (size_t)n);
    (void)console_put(p->console, "", text, (size_t)n, false);
    console_flush(p->console);
    return true;
}

static void on_out(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)take_output(arg);
}

static void on_room(void *arg)
{
    struct pty *p = arg;
    event_add(p->on_out, NULL);
}

/* ---- input ---- */

static void want_input(struct pty *p)
{
    if (p->eof || terminal_in_background())
        return;
    if (p->in.len == 0 && p->in_by_poll)
        event_add(p->on_in, NULL);
    else
        event_add(p->on_writable,
                  NULL); /* pass on the available data, then read the next piece of a file */
}

/* Send the EOF character: at the start of a line it ends the input; within a line, the first one
 * only submits the line. */
static void put_eof(struct pty *p)
{
    struct termios mode;
    char end = tcgetattr(p->master, &mode) == 0 ? (char)mode.c_cc[VEOF] : 4;
    const char twice[2] = {end, end};
    (void)dd_buf_append(&p->in, twice, p->mid_line ? 2 : 1);
}

static void read_input(struct pty *p)
{
    char text[CHUNK];
    ssize_t n = read(STDIN_FILENO, text, sizeof(text));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n > 0) {
        (void)dd_buf_append(&p->in, text, (size_t)n);
        p->mid_line = text[n - 1] != '\n';
    } else {
        p->eof = true;
        if (!p->outer->there) /* a closed terminal causes SIGHUP */
            put_eof(p);
    }
}

static void write_input(struct pty *p)
{
    ssize_t n = p->in.len > 0 ? write(p->master, p->in.data, p->in.len) : 0;
    if (n > 0)
        dd_buf_consume(&p->in, (size_t)n);
    if (p->in.len > 0)
        event_add(p->on_writable, NULL);
    else
        want_input(p);
}

static void on_in(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct pty *p = arg;
    if (terminal_in_background())
        return;
    read_input(p);
    write_input(p);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct pty *p = arg;
    if (p->in.len == 0 && !p->eof && !p->in_by_poll)
        read_input(p);
    write_input(p);
}

/* ---- the terminal on stdin ---- */

static void copy_size(const struct pty *p)
{
    terminal_copy_size(p->master, STDIN_FILENO);
}

static void on_winch(evutil_socket_t sig, short what, void *arg)
{
    (void)sig;
    (void)what;
    copy_size(arg);
}

/* SIGCONT: the shell has resumed this process, perhaps in the foreground. */
static void on_cont(evutil_socket_t sig, short what, void *arg)
{
    (void)sig;
    (void)what;
    struct pty *p = arg;
    terminal_raw(p->outer, p->alone);
    copy_size(p);
    want_input(p);
}

/* ---- start and end ---- */

static int open_pair(struct pty *p, struct dd_err *err)
{
    p->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (p->master < 0 || grantpt(p->master) < 0 || unlockpt(p->master) < 0 ||
        ptsname_r(p->master, p->path, sizeof(p->path)) != 0)
        return dd_err_set(err, -errno, "--pty: cannot create a pseudo-terminal: %m");
    p->slave = open(p->path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (p->slave < 0)
        return dd_err_set(err, -errno, "--pty: cannot open the pseudo-terminal '%s': %m", p->path);
    struct termios mode;
    if (!p->outer->there &&
        tcgetattr(p->slave, &mode) == 0) { /* no user types on stdin: disable echo */
        mode.c_lflag &= ~(tcflag_t)ECHO;
        (void)tcsetattr(p->slave, TCSANOW, &mode);
    }
    return 0;
}

static int make_events(struct pty *p, struct event_base *base, struct dd_err *err)
{
    const struct console_cb cb = {.on_room = on_room, .arg = p};
    p->on_out = event_new(base, p->master, EV_READ | EV_PERSIST, on_out, p);
    p->on_writable = event_new(base, p->master, EV_WRITE, on_writable, p);
    p->on_in = event_new(base, STDIN_FILENO, EV_READ, on_in, p);
    p->on_winch = evsignal_new(base, SIGWINCH, on_winch, p);
    p->on_cont = evsignal_new(base, SIGCONT, on_cont, p);
    if (p->on_out == NULL || p->on_writable == NULL || p->on_in == NULL || p->on_winch == NULL ||
        p->on_cont == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    return console_new(&p->console, base, STDOUT_FILENO, p->log, &cb, err);
}

int pty_new(struct pty **ret, struct event_base *base, const struct terminal *outer, bool alone,
            const struct dd_log *log, struct dd_err *err)
{
    DD_AUTO(pty) struct pty *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    *p = (struct pty){.outer = outer,
                      .log = log,
                      .alone = alone,
                      .master = -1,
                      .slave = -1,
                      .in = DD_BUF_INIT(IN_MAX)};
    int rc = open_pair(p, err);
    if (rc == 0)
        rc = make_events(p, base, err);
    if (rc < 0)
        return rc;
    copy_size(p);
    *ret = DD_TAKE(p);
    return 0;
}

void pty_keep_tail(struct pty *p, struct worker_output *out, int local_rank)
{
    p->out = out;
    p->local_rank = local_rank;
}

const char *pty_path(const struct pty *p)
{
    return p->path;
}

/* True unless stdin is a file or /dev/null, which epoll does not support, and which are always
 * readable. */
static bool stdin_can_wait(void)
{
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    return isatty(STDIN_FILENO) || (poll(&fd, 1, 0) >= 0 && lseek(STDIN_FILENO, 0, SEEK_CUR) < 0);
}

int pty_begin(struct pty *p, struct dd_err *err)
{
    terminal_raw(p->outer, p->alone);
    p->in_by_poll = stdin_can_wait();
    if (event_add(p->on_out, NULL) < 0 || event_add(p->on_winch, NULL) < 0 ||
        event_add(p->on_cont, NULL) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    want_input(p);
    return 0;
}

uint64_t pty_written(const struct pty *p)
{
    return p->written;
}

static void flush_out(struct pty *p)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    uint64_t end = dd_now_ns() + TAKE_MS * DD_NS_PER_MS;
    while (!console_empty(p->console) && !console_broken(p->console) && dd_now_ns() < end) {
        (void)poll(&out, 1, 20);
        console_flush(p->console);
    }
}

/* Read until the last process has closed the terminal, or the remaining ones are silent. */
static void take_rest(struct pty *p)
{
    struct pollfd from = {.fd = p->master, .events = POLLIN};
    uint64_t end = dd_now_ns() + TAKE_MS * DD_NS_PER_MS;
    while (dd_now_ns() < end && poll(&from, 1, REST_MS) > 0 && (from.revents & POLLIN) != 0) {
        flush_out(p);
        if (!take_output(p))
            break;
    }
    flush_out(p);
}

void pty_free(struct pty *p)
{
    if (p == NULL)
        return;
    if (p->slave >= 0)
        close(p->slave);
    if (p->console != NULL)
        take_rest(p);
    terminal_restore(p->outer);
    struct event *events[] = {p->on_out, p->on_in, p->on_writable, p->on_winch, p->on_cont};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i] != NULL)
            event_free(events[i]);
    console_free(p->console);
    if (p->master >= 0)
        close(p->master);
    dd_buf_done(&p->in);
    free(p);
}
