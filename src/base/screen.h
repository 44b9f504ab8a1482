/* The status line of a terminal: one line that is rewritten in place, and erased before anything
 * else is written there. All processes of ddrun on this machine share its state in memory: one of
 * them draws, each erases. NULL is allowed for the screen everywhere: there is no terminal. */
#ifndef DD_BASE_SCREEN_H
#define DD_BASE_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

struct dd_screen;

/* Return the screen of terminal `fd`, for this process and its forks. NULL: `fd` is no terminal or
 * one that cannot move its cursor (TERM=dumb), or the memory cannot be created. */
struct dd_screen *dd_screen_new(int fd);
/* Return the screen that the parent of this program uses. `fd`: the same terminal; memory_fd: the
 * inherited descriptor of the screen's memory, which is taken. NULL: memory_fd is -1, or the
 * terminal or the memory cannot be opened. */
struct dd_screen *dd_screen_open(int fd, int memory_fd);
int dd_screen_memory(const struct dd_screen *s); /* descriptor of the screen's memory; -1: none */
void dd_screen_free(struct dd_screen *s);

/* Call these before and after each write of other text to the terminal. dd_screen_begin() erases
 * the line; no process draws it until dd_screen_end(). It never waits: false if the line remains,
 * because the terminal accepts nothing now (Ctrl-S). */
bool dd_screen_begin(struct dd_screen *s);
void dd_screen_end(struct dd_screen *s);

/* True if this process may draw: no other living process does. */
bool dd_screen_claim(struct dd_screen *s);
bool dd_screen_is_ours(const struct dd_screen *s); /* this process draws */
/* Draw the line over the previous one. Does nothing while another process writes, if this process
 * is in the background, or if the terminal would block. */
void dd_screen_draw(struct dd_screen *s, const char *line);
void dd_screen_clear(struct dd_screen *s); /* erases the line of any process */
size_t dd_screen_columns(const struct dd_screen *s);

#endif
