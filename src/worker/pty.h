/* A terminal for one worker: what it writes goes to stdout, what comes from stdin goes to it; a
 * terminal on stdin is made raw meanwhile, so that keys, Ctrl-C and window size are the worker's.
 */
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

/* outer: stdin's terminal as it was at the beginning; borrowed with log until free. alone: nobody
 * else writes to stdout. Gives *ret. */
int pty_new(struct pty **ret, struct event_base *base, const struct terminal *outer, bool alone,
            const struct dd_log *log, struct dd_err *err);
/* What the worker writes is also kept as the last lines of this local rank (worker_output_tail);
 * borrowed until free. */
void pty_keep_tail(struct pty *p, struct worker_output *out, int local_rank);
const char *pty_path(const struct pty *p); /* for the worker to open */
int pty_begin(struct pty *p, struct dd_err *err);
uint64_t pty_written(const struct pty *p); /* bytes by the worker */
/* The worker is gone: passes the rest on and restores the terminal. Waits at most some seconds for
 * a stdout that takes nothing. NULL is fine. */
void pty_free(struct pty *p);

#endif
