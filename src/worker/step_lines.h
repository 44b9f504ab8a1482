/* Finds the steps of a program in its lines of output: --progress-regex. No I/O. */
#ifndef DD_WORKER_STEP_LINES_H
#define DD_WORKER_STEP_LINES_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum {
    STEP_LINE_MAX = 4096,  /* bytes of a line that are searched */
    STEP_REGEX_MAX = 1000, /* bytes of a regular expression */
};

struct step_lines;

/* regex: a POSIX extended regular expression. The first of its groups that has matched a number is
 * the step. -EINVAL with a message: it is invalid, or has no group. */
int step_lines_new(struct step_lines **ret, const char *regex, struct dd_err *err);
void step_lines_free(struct step_lines *s); /* NULL is allowed */

/* Call on_step for each step that is higher than all before it in the round. */
void step_lines_on_step(struct step_lines *s, void (*on_step)(void *arg), void *arg);
void step_lines_begin(struct step_lines *s); /* begins a round without steps */
/* Take output of the worker; stream: 0 stdout, 1 stderr. A line ends with \n or \r. */
void step_lines_feed(struct step_lines *s, int stream, const void *p, size_t n);
/* To be called at the end of the output: search the last lines, which may have no line end. */
void step_lines_end(struct step_lines *s);
/* Return the highest step of the round; -1: none. */
int64_t step_lines_highest(const struct step_lines *s);

#endif
