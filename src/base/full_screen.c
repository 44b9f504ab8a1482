#include "base/full_screen.h"

#include "base/auto.h"
#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* Sequences of ECMA-48, and xterm's alternate screen, which screen, tmux and the consoles support.
 * Automatic margins are off: a line with characters that are wider than assumed is cut off at the
 * right margin, and does not wrap. */
#define ENTER "\033[?1049h\033[?25l\033[?7l\033[0m\033[2J"
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"
#define CANCEL "\030" /* ends a sequence that was written in part */

enum { LINES_MOST = 1000, COLUMNS_MOST = 1000, OUT_MAX = 8 << 20, LEAVE_MS = 500 };

struct dd_full_screen {
    int fd; /* reopened, so that O_NONBLOCK is set for this process alone */
    bool colours;
    bool entered;
    struct termios saved;
    struct dd_line *shown; /* [n] lines on the terminal */
    int n;
    struct dd_buf out; /* output that the terminal has not accepted yet */
};

static void forget_lines(struct dd_full_screen *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->shown[i].text);
    free(s->shown);
    s->shown = NULL;
    s->n = 0;
}

int dd_full_screen_new(struct dd_full_screen **ret, int fd, bool colours, struct dd_err *err)
{
    char path[40];
    const char *term = getenv("TERM");
    if (isatty(fd) != 1)
        return dd_err_set(err, -ENOTTY, "stdout is not a terminal");
    if (term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0)
        return dd_err_set(err, -ENOTTY, "the terminal cannot move its cursor (%s%.40s)",
                          term != NULL ? "TERM=" : "TERM is not set", term != NULL ? term : "");
    struct dd_full_screen *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    s->colours = colours;
    s->out = DD_BUF_INIT(OUT_MAX);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    s->fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (s->fd < 0) /* after su, the terminal belongs to another user */
        s->fd = open("/dev/tty", O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (s->fd < 0 || tcgetattr(s->fd, &s->saved) < 0) {
        const int rc = dd_err_set(err, -errno, "cannot open the terminal: %m");
        dd_full_screen_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void dd_full_screen_free(struct dd_full_screen *s)
{
    if (s == NULL)
        return;
    dd_full_screen_leave(s);
    forget_lines(s);
    dd_buf_done(&s->out);
    if (s->fd >= 0)
        close(s->fd);
    free(s);
}

int dd_full_screen_fd(const struct dd_full_screen *s)
{
    return s->fd;
}

/* ISIG stays on: Ctrl-C and Ctrl-Z are signals. */
int dd_full_screen_enter(struct dd_full_screen *s)
{
    struct termios t = s->saved;
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ECHONL | IEXTEN);
    t.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | ISTRIP);
    t.c_lflag |= ISIG;
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    s->entered = true;
    forget_lines(s);
    dd_buf_clear(&s->out);
    if (tcsetattr(s->fd, TCSANOW, &t) < 0)
        return -errno;
    return dd_buf_puts(&s->out, ENTER);
}

void dd_full_screen_leave(struct dd_full_screen *s)
{
    const char *rest = CANCEL LEAVE;
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    if (!s->entered)
        return;
    s->entered = false;
    if (s->out.len == 0)
        rest = LEAVE;
    dd_buf_clear(&s->out);
    while (*rest != '\0') {
        const ssize_t n = write(s->fd, rest, strlen(rest));
        if (n > 0)
            rest += n;
        else if (n < 0 && errno != EINTR && (errno != EAGAIN || poll(&p, 1, LEAVE_MS) <= 0))
            break; /* the terminal is gone, or accepts nothing (Ctrl-S) */
    }
    (void)tcsetattr(s->fd, TCSANOW, &s->saved);
}

void dd_full_screen_size(const struct dd_full_screen *s, int *ret_lines, int *ret_columns)
{
    struct winsize w = {0};
    (void)ioctl(s->fd, TIOCGWINSZ, &w);
    *ret_lines = w.ws_row == 0 ? 24 : w.ws_row < LINES_MOST ? w.ws_row : LINES_MOST;
    *ret_columns = w.ws_col == 0 ? 80 : w.ws_col < COLUMNS_MOST ? w.ws_col : COLUMNS_MOST;
}

static bool is_shown(const struct dd_full_screen *s, int i, const struct dd_line *l)
{
    const char *now = i < s->n && s->shown[i].text != NULL ? s->shown[i].text : "";
    return i < s->n && s->shown[i].style == l->style &&
           strcmp(now, l->text != NULL ? l->text : "") == 0;
}

static int put_line(struct dd_full_screen *s, int i, const struct dd_line *l)
{
    static const char *const styles[DD_LINE_STYLES][2] = {
        [DD_LINE_PLAIN] = {"", ""},
        [DD_LINE_BOLD] = {"\033[1m", "\033[1m"},
        [DD_LINE_REVERSE] = {"\033[7m", "\033[7m"},
        [DD_LINE_BAD] = {"\033[1m", "\033[1;31m"},
        [DD_LINE_BAD_REVERSE] = {"\033[1;7m", "\033[1;7;31m"},
    };
    return dd_buf_printf(&s->out, "\033[%d;1H%s%s\033[0m\033[K", i + 1,
                         styles[l->style][s->colours ? 1 : 0], l->text != NULL ? l->text : "");
}

int dd_full_screen_draw(struct dd_full_screen *s, struct dd_line *lines, int n)
{
    int rc = 0;
    if (s->shown != NULL && !dd_full_screen_flush(s))
        return -EAGAIN;
    struct dd_line *kept = calloc((size_t)n + 1, sizeof(*kept));
    if (kept == NULL)
        return -ENOMEM;
    for (int i = 0; i < n && rc == 0; i++)
        rc = is_shown(s, i, &lines[i]) ? 0 : put_line(s, i, &lines[i]);
    if (rc == 0 && n < s->n)
        rc = dd_buf_printf(&s->out, "\033[%d;1H\033[J", n + 1);
    forget_lines(s);
    for (int i = 0; i < n; i++) {
        kept[i] = lines[i];
        lines[i].text = NULL;
    }
    s->shown = kept;
    s->n = n;
    (void)dd_full_screen_flush(s);
    return rc;
}

bool dd_full_screen_flush(struct dd_full_screen *s)
{
    while (s->out.len > 0) {
        const ssize_t n = write(s->fd, s->out.data, s->out.len);
        if (n <= 0 && (n == 0 || errno != EINTR))
            return false;
        if (n > 0)
            dd_buf_consume(&s->out, (size_t)n);
    }
    return true;
}
