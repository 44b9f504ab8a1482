/* Folds equal lines of this node's workers (worker/line_fold.h) on their way to the console. */
#ifndef DD_WORKER_OUTPUT_FOLD_H
#define DD_WORKER_OUTPUT_FOLD_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>

struct console;
struct event_base;
struct output_fold;

/* console: of stdout and stderr, borrowed until free. */
int output_fold_new(struct output_fold **ret, struct event_base *base,
                    struct console *const console[2], const struct dd_log *log, struct dd_err *err);
void output_fold_free(struct output_fold *f);
/* Begin a round with these workers. 0 or -ENOMEM. */
int output_fold_begin(struct output_fold *f, const int *ranks, int nlocal);
/* Take a line of a worker's stdout (k = 0) or stderr (1), with or without its end. */
void output_fold_line(struct output_fold *f, int k, int local_rank, const void *line, size_t len);
/* Pass on what is due, or all, as far as the consoles have room. */
void output_fold_write(struct output_fold *f, bool all);
bool output_fold_empty(const struct output_fold *f);
/* Discard the lines for console k, whose reader is gone. */
void output_fold_drop(struct output_fold *f, int k);

#endif
