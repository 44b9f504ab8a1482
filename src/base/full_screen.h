/* A terminal that a program uses as a whole: its modes, its size, and its lines, of which only
 * those that have changed are written. Only dd_full_screen_leave() blocks, for at most 0.5 s while
 * the terminal accepts nothing. */
#ifndef DD_BASE_FULL_SCREEN_H
#define DD_BASE_FULL_SCREEN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct dd_full_screen;

enum dd_line_style {
    DD_LINE_PLAIN,
    DD_LINE_BOLD,
    DD_LINE_REVERSE,
    DD_LINE_BAD, /* bold, in red where there are colours */
    DD_LINE_BAD_REVERSE,
    DD_LINE_STYLES,
};

/* One line: text without control characters that is not wider than the terminal. */
struct dd_line {
    char *text; /* NULL: empty */
    enum dd_line_style style;
};

/* Use the terminal of descriptor fd. colours: dd_colour_is_wanted(). The caller owns *ret. 0, or
 * with a message -ENOTTY (fd is not a terminal, or one that cannot move its cursor, as with
 * TERM=dumb) or another -errno. */
int dd_full_screen_new(struct dd_full_screen **ret, int fd, bool colours, struct dd_err *err);
void dd_full_screen_free(struct dd_full_screen *s); /* leaves the screen; NULL does nothing */
/* Return the non-blocking descriptor, for events and keys. */
int dd_full_screen_fd(const struct dd_full_screen *s);

/* Change the modes of the terminal; the next draw writes all lines. Call it again when another
 * process may have changed the terminal. 0 or -errno. */
int dd_full_screen_enter(struct dd_full_screen *s);
/* Restore the terminal. Does nothing if the screen was not entered. */
void dd_full_screen_leave(struct dd_full_screen *s);
/* Return the size; 80 columns and 24 lines if the terminal does not report it. */
void dd_full_screen_size(const struct dd_full_screen *s, int *ret_lines, int *ret_columns);
/* Show these lines, from the top; sets the texts that it takes to NULL. 0 or -errno; -EAGAIN: the
 * terminal has not accepted the previous lines yet: draw again when dd_full_screen_flush() returns
 * true. */
int dd_full_screen_draw(struct dd_full_screen *s, struct dd_line *lines, int n);
/* Write as much output as the terminal accepts now. True: none is pending. */
bool dd_full_screen_flush(struct dd_full_screen *s);

#endif
