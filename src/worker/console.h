/* A queue in front of a descriptor for output: stdout or stderr of this process, or a socket to the
 * log writer. Writing does not block the event loop, except to regular files. Output is lost only
 * after a write error, as when the reader has closed its end. */
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
    void (*on_room)(void *arg);   /* called from the loop, once after each console_wait() */
    void (*on_broken)(void *arg); /* the reader has closed its end; further output is dropped */
    void *arg;
};

/* fd is borrowed until free. O_NONBLOCK is not set on it, since other processes share it. The
 * caller ignores SIGPIPE. The caller owns *ret. */
int console_new(struct console **ret, struct event_base *base, int fd, const struct dd_log *log,
                const struct console_cb *cb, struct dd_err *err);
/* Declare that no other process writes to fd, so that incomplete lines may be written. */
void console_alone(struct console *c);
/* True for a user's terminal: the controlling terminal of this session, or one that has a size. The
 * pseudo-terminal that slurmstepd uses in place of a pipe (srun --unbuffered) is neither; lines
 * must stay whole there. */
bool console_is_terminal(const struct console *c);
/* End an incomplete line, so that another line can follow. */
void console_end_line(struct console *c);
/* True if both descriptors refer to the same file. */
bool console_same(int fd_a, int fd_b);
/* Queue prefix and text, and a newline if `cut`; nothing if the console is broken. Return 0,
 * -ENOMEM, or -EMSGSIZE if the queue would exceed 4 MiB. */
int console_put(struct console *c, const char *prefix, const void *text, size_t len, bool cut);
void console_flush(struct console *c); /* writes as much as possible without blocking */
bool console_full(const struct console *c);
/* Request on_room, for a caller that has stopped because the console is full, or that waits until
 * it is empty. */
void console_wait(struct console *c);
bool console_empty(const struct console *c);
bool console_broken(const struct console *c);
uint64_t console_written(const struct console *c); /* bytes written so far */
void console_drop(struct console *c);              /* discards the queue */
void console_free(struct console *c);

#endif
