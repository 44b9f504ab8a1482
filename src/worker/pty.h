/* A pseudo-terminal for one worker: its output goes to stdout, stdin is its input. A terminal on
 * stdin is switched to raw mode meanwhile, so that keys, Ctrl-C and window size apply to the
 * worker. */
#ifndef DD_WORKER_PTY_H
#define DD_WORKER_PTY_H

#include "base/err.h"
#include "base/log.h"
#include "worker/terminal.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct pty;
struct worker_output; /* worker/output.h */

/* outer: state of the terminal on stdin at the start; borrowed with log until free. alone: no other
 * process writes to stdout. The caller owns *ret. */
int pty_new(struct pty **ret, struct event_base *base, const struct terminal *outer, bool alone,
            const struct dd_log *log, struct dd_err *err);
/* Also keep the worker's output as last lines of this local rank (worker_output_tail). out is
 * borrowed until free. */
void pty_keep_tail(struct pty *p, struct worker_output *out, int local_rank);
const char *pty_path(const struct pty *p); /* path for the worker to open */
int pty_begin(struct pty *p, struct dd_err *err);
uint64_t pty_written(const struct pty *p); /* number of bytes from the worker */
/* The worker has exited: pass on the rest and restore the terminal. Waits at most some seconds for
 * a blocked stdout. NULL is allowed. */
void pty_free(struct pty *p);

#endif
