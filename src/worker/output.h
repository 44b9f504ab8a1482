/* What workers print: whole lines, with a label or without, files per rank and stream, tee.
 *
 * torchrun's syntax for --redirects and --tee ("3" or "0:1,1:2"; local ranks of any number of
 * digits), its directory layout below --log-dir, plus --label.
 *
 * A stream that is only redirected is opened by the worker itself. Every other stream passes
 * through the agent, which keeps its last lines for the report. Lines of several workers reach the
 * console whole; \r ends a line too (progress bars), and gets no newline; a line of more than 1 MiB
 * is cut into such pieces. Output that shares its place with no other worker goes on as it comes,
 * byte for byte. Where the console is a terminal, rank 0 writes to a terminal of its size. When the
 * console takes nothing, the workers wait, not the agent; when it is gone, workers that print only
 * there get EPIPE, as if they wrote there themselves. The caller ignores SIGPIPE.
 *
 * raw: what neither a label nor a file is asked for inherits the agent's stdout and stderr.
 *
 * --redirects without --log-dir: a directory of its own below tmp_dir; --tee without it: no files.
 * --log-dir=/dev/null: no directories, what is redirected is lost.
 */
#ifndef DD_WORKER_OUTPUT_H
#define DD_WORKER_OUTPUT_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct worker_output;

enum { OUTPUT_STDOUT = 1, OUTPUT_STDERR = 2, OUTPUT_BOTH = 3 };

struct output_spec {
    const char *log_dir;            /* --log-dir, NULL: none */
    const char *run_id;             /* for the directory name, as torchrun's */
    const char *redirects;          /* -r, NULL or "" = 0 */
    const char *tee;                /* -t */
    const char *local_ranks_filter; /* "0,1": others are mute on the console */
    const char *role;               /* tee prefix of torchrun: [role0]: */
    const char *prefix;     /* another one, with ${role_name}, ${rank} and ${local_rank}; NULL */
    const char *filters[2]; /* --duplicate-stdout-filters, ...stderr...; NULL: none */
    bool watch;             /* worker_output_written() is wanted of all workers */
    bool log_all; /* with log_dir: both streams of all workers go to files, too, without a label */
    bool label;   /* "[rank]: " in front of each console line */
    bool raw;     /* workers inherit what may be inherited */
    const char *tmp_dir;      /* where --redirects goes without --log-dir; NULL: /tmp */
    const struct dd_log *log; /* NULL: silent; what could not be written is told there */
};

/* Checks the syntax; -EINVAL with a sentence that names the option. *ret is NULL when all output is
 * raw (fast path). spec is borrowed during the call, its log until free. */
int worker_output_new(struct worker_output **ret, struct event_base *base,
                      const struct output_spec *spec, struct dd_err *err);
/* For each new round: number of the attempt, the ranks of the local workers in order, and whether
 * the job has no other worker. Makes directories; an attempt that was there already gets the next
 * free number, so no logs are lost. */
int worker_output_begin(struct worker_output *o, int attempt, const int *ranks, int nlocal,
                        bool alone, struct dd_err *err);
/* What a worker's error file would be: DIR/.../attempt_N/LOCAL/error.json, "" without a log dir.
 * Lent until the next begin. */
const char *worker_output_error_file(const struct worker_output *o, int local_rank);
/* The file that this worker's stderr goes to, "" for none. Lent until the next begin. */
const char *worker_output_log(const struct worker_output *o, int local_rank);
/* The last lines (at most 20) that this rank wrote to stderr, or to stdout where stderr has none,
 * if they went through the agent or into a file; lent until the next call, may be "". */
const char *worker_output_tail(struct worker_output *o, int local_rank);
/* Adds to these what this rank wrote elsewhere (worker/pty.c). */
void worker_output_keep(struct worker_output *o, int local_rank, const void *p, size_t n);
/* True: the console is a terminal, but the stdout of this rank is not, so that programs fill
 * buffers. */
bool worker_output_hides_terminal(const struct worker_output *o, int local_rank);
/* A number that grows when this rank writes something; needs output_spec.watch. */
uint64_t worker_output_written(const struct worker_output *o, int local_rank);
void worker_output_free(struct worker_output *o);

/* The rest is for worker/group.c. */

/* stdout and stderr of a worker that is about to start, lent until worker_output_given(); -1: the
 * agent's own. */
int worker_output_fds(struct worker_output *o, int local_rank, int ret_fds[2], struct dd_err *err);
/* This worker has been started: its ends are closed here. */
void worker_output_given(struct worker_output *o, int local_rank);
/* All workers have been started: reading begins. */
void worker_output_started(struct worker_output *o);
/* Reads what is there of this worker's output, so that worker_output_tail() is complete. */
void worker_output_catch_up(struct worker_output *o, int local_rank);
/* No writer is left (whoever still holds the other end is not waited for): reads the rest, flushes
 * it, then calls done from the loop. limit_ms: give up on a console that takes nothing for so long;
 * 0: wait as long as it takes. */
void worker_output_finish(struct worker_output *o, unsigned limit_ms, void (*done)(void *arg),
                          void *arg);
/* Closes everything of this round at once; done is not called any more. */
void worker_output_abort(struct worker_output *o);

#endif
