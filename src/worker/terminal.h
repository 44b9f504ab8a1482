/* The terminal on stdin, if there is one: its modes, and whether it is ours to read from. */
#ifndef DD_WORKER_TERMINAL_H
#define DD_WORKER_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct terminal {
    bool there; /* stdin is a terminal */
    struct termios mode;
};

void terminal_save(struct terminal *t);
/* A pseudo-terminal for output, of the size and with the modes of the one on fd `like`; what is
 * written to ret[1] can be read from ret[0] as it is. 0 or -errno. */
int terminal_pair(int ret[2], int like);
void terminal_copy_size(int to, int from);
/* A job in the background must leave the terminal to the shell. */
bool terminal_in_background(void);
/* Keys come one by one, Ctrl-C as a character. whole: output too goes as it is, without \r before
 * each
 * \n. Not from the background. */
void terminal_raw(const struct terminal *t, bool whole);
/* As it was saved, where it is not; not from the background. */
void terminal_restore(const struct terminal *t);

#endif
