/* The output of the workers: whole lines on the console, with or without labels, and files for each
 * rank and stream.
 *
 * --redirects and --tee have torchrun's syntax ("3" or "0:1,1:2"), --log-dir its directory layout.
 *
 * If a stream only goes to a file, the worker writes the file itself. Every other stream passes
 * through the agent, which keeps its last lines for the report. Lines of several workers stay whole
 * on the console. \r ends a line, too (progress bars), and gets no newline; a line of more than 1
 * MiB is cut into pieces. Output of a job with only one worker is passed on unchanged, unless it
 * gets labels. If the console is a terminal, unlabelled and unfolded output of rank 0 goes through
 * a pseudo-terminal of the same size. If the console blocks, the workers wait, not the agent; if
 * its reader has closed it, workers that write nowhere else get EPIPE, as without ddrun. The caller
 * ignores SIGPIPE.
 *
 * raw: streams without labels and files are inherited from the agent.
 *
 * Without --log-dir, --redirects, and --tee with filters, use a new directory below tmp_dir; --tee
 * alone writes no files. With --log-dir=/dev/null, there are no directories, and redirected output
 * is discarded.
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
    const char *log_dir;            /* --log-dir; NULL: none */
    const char *run_id;             /* part of the directory name, as in torchrun */
    const char *redirects;          /* --redirects; NULL or "": 0 */
    const char *tee;                /* --tee; NULL or "": 0 */
    const char *local_ranks_filter; /* "0,1": other ranks do not write to the console */
    const char *role;               /* used in torchrun's prefix of --tee, [role0]: */
    const char *prefix; /* template of another prefix, with ${role_name}, ${rank} and ${local_rank};
                           NULL: none */
    const char
        *filters[2]; /* --duplicate-stdout-filters and --duplicate-stderr-filters; NULL: none */
    bool watch;      /* worker_output_written() must work for all workers */
    bool log_all;    /* with log_dir: write both streams of all workers to files, without labels */
    bool label;      /* "[rank]: " in front of each console line */
    bool fold;       /* write equal lines of several workers once, with their ranks */
    bool raw;        /* workers inherit streams if possible */
    const char *tmp_dir;      /* directory for log files without --log-dir; NULL: /tmp */
    const struct dd_log *log; /* log for write errors; NULL: none */
};

/* Check the options, and make the directory of the log files. Return 0, -EINVAL with a message that
 * names the option, or another -errno with a message. *ret is NULL if all output is raw. spec is
 * borrowed during the call, its log until free. */
int worker_output_new(struct worker_output **ret, struct event_base *base,
                      const struct output_spec *spec, struct dd_err *err);
/* To be called for each round: number of the attempt, ranks of the local workers in order, and
 * whether the job has only one worker. Makes directories; replaces a number that is not above the
 * last one by the next free number, so that no logs are lost. */
int worker_output_begin(struct worker_output *o, int attempt, const int *ranks, int nlocal,
                        bool alone, struct dd_err *err);
/* Return the path of a worker's error file, DIR/.../attempt_N/LOCAL/error.json, or "" without a log
 * directory. Lent until the next begin. */
const char *worker_output_error_file(const struct worker_output *o, int local_rank);
/* Return the path of the file with this worker's stderr, or "". Lent until the next begin. */
const char *worker_output_log(const struct worker_output *o, int local_rank);
/* Return the last lines (at most TAIL_LINES) that this rank wrote to stderr, or to stdout if it
 * wrote none to stderr, provided that they passed through the agent or went to a file. Lent until
 * the next call; may be "". */
const char *worker_output_tail(struct worker_output *o, int local_rank);
/* Return the last lines of the stream that this rank wrote to last, if they passed through the
 * agent; with `files` and without such lines, those of worker_output_tail(). Lent until the next
 * call. */
const char *worker_output_recent(struct worker_output *o, int local_rank, bool files);
struct step_lines; /* worker/step_lines.h */
/* From the next round on, pass the output of the first local rank to steps, which is borrowed;
 * NULL: no longer. Needs output_spec.watch. */
void worker_output_watch_steps(struct worker_output *o, struct step_lines *steps);
/* Add output that this rank wrote elsewhere (worker/pty.c) to its last lines. */
void worker_output_keep(struct worker_output *o, int local_rank, const void *p, size_t n);
/* True if the console is a terminal, but the stdout of this rank is not, so that programs buffer
 * their output. */
bool worker_output_hides_terminal(const struct worker_output *o, int local_rank);
/* Return a number that grows when this rank writes; needs output_spec.watch. */
uint64_t worker_output_written(const struct worker_output *o, int local_rank);
/* Return when the first output of this rank passed through the agent; 0: none has. */
uint64_t worker_output_first_ns(const struct worker_output *o, int local_rank);
void worker_output_free(struct worker_output *o);

/* Functions for worker/worker_group.c: */

/* Return stdout and stderr for a worker that is about to start, lent until worker_output_given();
 * -1: the agent's own. */
int worker_output_fds(struct worker_output *o, int local_rank, int ret_fds[2], struct dd_err *err);
/* Close the descriptors of worker_output_fds(), once the worker has been started. */
void worker_output_given(struct worker_output *o, int local_rank);
/* Begin to read, once all workers have been started. */
void worker_output_started(struct worker_output *o);
/* Read the available output of a worker that exited at exit_ns, so that worker_output_tail() is
 * complete. What is read was written before, so worker_output_first_ns() is not after exit_ns. */
void worker_output_catch_up(struct worker_output *o, int local_rank, uint64_t exit_ns);
/* The workers have exited (other processes with the same descriptors are ignored): read the rest,
 * flush it, then call done from the loop. limit_ms: give up on a console that has taken nothing for
 * that time; 0: no limit. */
void worker_output_finish(struct worker_output *o, unsigned limit_ms, void (*done)(void *arg),
                          void *arg);
/* Close everything of this round at once; done is not called any more. */
void worker_output_abort(struct worker_output *o);

#endif
