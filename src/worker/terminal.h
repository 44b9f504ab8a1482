/* The terminal on stdin, if there is one: its modes, and whether this process may read from it. */
#ifndef DD_WORKER_TERMINAL_H
#define DD_WORKER_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct terminal {
    bool there; /* stdin is a terminal */
    struct termios mode;
};

void terminal_save(struct terminal *t);
/* Make a pseudo-terminal for output, with size and modes of the terminal on fd `like`; output to
 * ret[1] can be read unchanged from ret[0]. Return 0 or -errno. */
int terminal_pair(int ret[2], int like);
void terminal_copy_size(int to, int from);
/* True if this process is in the background, where using the terminal would stop it. */
bool terminal_in_background(void);
/* Deliver keys one by one, and Ctrl-C as a character. whole: also leave output unchanged, without
 * \r before each \n. No effect in the background. */
void terminal_raw(const struct terminal *t, bool whole);
/* Restore the saved modes if they differ; no effect in the background. */
void terminal_restore(const struct terminal *t);

#endif
