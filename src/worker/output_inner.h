/* Shared by output.c, output_plan.c and output_end.c. */
#ifndef DD_WORKER_OUTPUT_INNER_H
#define DD_WORKER_OUTPUT_INNER_H

#include "worker/output.h"

#include "base/buf.h"
#include "base/strv.h"
#include "worker/console.h"
#include "worker/output_fold.h"
#include "worker/output_stream.h"
#include "worker/ranks.h"
#include "worker/writer.h"

#include <event2/event.h>

struct output_rank {
    struct output_stream stream[2]; /* stdout, stderr */
    char *error_file;
    int rank;
};

struct worker_output {
    struct event_base *base;
    const struct dd_log *log;
    struct rank_map redirects, tee, visible;
    bool log_all;
    char *log_dir; /* NULL: not given, or no files wanted */
    char *tmp_dir;
    char *run_id;
    char *role;
    char *prefix; /* template; NULL: default */
    struct dd_strv filters[2];
    char *filter_path[2]; /* path of the file of filtered lines in this attempt; NULL: none */
    int filter_fd[2];     /* sockets to the writer; -1: none */
    struct console *filter[2];
    struct writer *writer; /* writer of this attempt's files; NULL: none */
    bool finishing;        /* writer_finish() has been called */
    bool files_done;
    bool hangs;    /* a log file could not be read in time: do not try again */
    char *run_dir; /* directory of this run; NULL: no files */
    bool no_files; /* --log-dir=/dev/null */
    bool label, raw, folds;
    struct output_fold *fold; /* NULL: lines are not folded */
    bool watch;
    struct step_lines *steps; /* borrowed; NULL: none */
    bool alone;               /* the job has only one worker */
    bool warned;              /* the warning about too few descriptors has been logged */
    size_t tail_most;         /* limit of each stream's tail, in bytes */
    struct event
        *on_winch; /* SIGWINCH: the terminal has a new size; NULL: no pseudo-terminal in use */
    int attempt;
    struct console *console[2]; /* [1] may be the same as [0] */
    struct output_rank *ranks;
    int nlocal;
    struct dd_buf tail_text;
    /* state of worker_output_finish() */
    struct event *on_finished; /* also fires at the time limit */
    void (*done)(void *arg);
    void *done_arg;
    unsigned limit_ms;
    uint64_t written; /* bytes written when the limit was set */
};

static inline struct output_stream *output_stream_at(struct worker_output *o, int i)
{
    return &o->ranks[i / 2].stream[i % 2];
}

/* ---- output_plan.c: options, and the mode of each stream ---- */

int output_options_take(struct worker_output *o, const struct output_spec *spec,
                        struct dd_err *err);
/* True if lines may go to the files of filtered lines: only lines of streams with --tee can. */
bool output_any_filter(const struct worker_output *o);
int output_rank_begin(struct worker_output *o, int i, int rank);
void output_ranks_done(struct worker_output *o);
int output_filters_begin(struct worker_output *o);

/* ---- output_end.c: end of a round ---- */

void output_filters_close(struct worker_output *o);
/* Finish the round if all output has been written, or cannot be written any more. */
void output_finish_check(struct worker_output *o);
void output_on_files_done(void *arg);
void output_on_finished(evutil_socket_t fd, short what, void *arg);

#endif
