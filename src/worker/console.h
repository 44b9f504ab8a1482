/* The agent's stdout or stderr as a queue that never blocks the loop and loses nothing. */
#ifndef DD_WORKER_CONSOLE_H
#define DD_WORKER_CONSOLE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct console;

struct console_cb {
    void (*on_room)(void *arg);   /* once after each console_wait(), from the loop */
    void (*on_broken)(void *arg); /* the reader is gone; whatever is put from now on is dropped */
    void *arg;
};

/* fd is borrowed until free; O_NONBLOCK is not set on it, since others share it. SIGPIPE is ignored
 * by the caller. Gives *ret. */
int console_new(struct console **ret, struct event_base *base, int fd, const struct dd_log *log,
                const struct console_cb *cb, struct dd_err *err);
/* Nobody else writes there: lines need not go out whole. */
void console_alone(struct console *c);
bool console_is_terminal(const struct console *c);
/* Ends a line that was begun and not ended, so that another one can follow. */
void console_end_line(struct console *c);
/* Two file descriptors that lead to the same place. */
bool console_same(int fd_a, int fd_b);
/* Queues prefix and text, and a newline when `cut`. 0 or -ENOMEM. */
int console_put(struct console *c, const char *prefix, const void *text, size_t len, bool cut);
void console_flush(struct console *c); /* writes what goes without waiting */
bool console_full(const struct console *c);
/* The caller stopped because the console is full, or waits until it is empty: asks for on_room when
 * it is far from full. */
void console_wait(struct console *c);
bool console_empty(const struct console *c);
bool console_broken(const struct console *c);
uint64_t console_written(const struct console *c); /* bytes so far */
void console_drop(struct console *c);              /* forgets what is queued */
void console_free(struct console *c);

#endif
