/* What workers print: labels on whole lines, files per rank and stream, tee.
 *
 * torchrun's syntax for --redirects and --tee ("3" or "0:1,1:2"; local ranks of any number of
 * digits), its directory layout below --log-dir, plus --label.
 */
#ifndef DD_WORKER_OUTPUT_H
#define DD_WORKER_OUTPUT_H

#include "base/err.h"

#include <stdbool.h>

struct event_base;
struct worker_output;

enum { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2, OUTPUT_BOTH = 3 };

struct output_spec {
    const char *log_dir;      /* --log-dir, NULL: none */
    const char *run_id;       /* for the directory name, as torchrun's */
    const char *redirects;    /* -r, NULL or "" = 0 */
    const char *tee;          /* -t */
    const char *local_ranks_filter; /* "0,1": others are mute on the console */
    const char *role;         /* tee prefix of torchrun: [role0]: */
    bool label;               /* "[rank]: " in front of each console line */
};

/* Checks the syntax; -EINVAL with a sentence that names the option. *ret is NULL when nothing is asked for (fast path). */
int worker_output_new(struct worker_output **ret, struct event_base *base,
                      const struct output_spec *spec, struct dd_err *err);
/* For each new round: number of the attempt, and the ranks of the local workers in order. Makes directories. */
int worker_output_begin(struct worker_output *o, int attempt, const int *ranks, int nlocal,
                        struct dd_err *err);
/* What a worker's error file would be: DIR/.../attempt_N/LOCAL/error.json, "" without a log dir. Lent until the next begin. */
const char *worker_output_error_file(const struct worker_output *o, int local_rank);
/* The last lines (at most 20) that this rank wrote to stderr, if they went through us; lent, may be "". */
const char *worker_output_tail(const struct worker_output *o, int local_rank);
void worker_output_free(struct worker_output *o);

#endif
