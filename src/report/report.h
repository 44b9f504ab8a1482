/* The report of a job: what failed first, what became of the others, how long things took. Pure: it
 * is told what happens, with times on one clock, and gives text for a person and JSON
 * (docs/report.md).
 *
 * What is kept is bounded: the earliest REPORT_EXITS failures of a round and the first
 * REPORT_ROUNDS rounds; all of them are counted.
 */
#ifndef DD_REPORT_REPORT_H
#define DD_REPORT_REPORT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum { REPORT_EXITS = 32, REPORT_ROUNDS = 64, REPORT_TEXT_MAX = 12000, REPORT_JSON_MAX = 200000 };

/* One worker that failed. Texts are borrowed where it is passed in; NULL and "" mean: not known. */
struct report_exit {
    int rank, local_rank, pid, code, signal; /* pid 0: it was never started */
    bool oom;       /* the kernel killed a process of its cgroup for lack of memory */
    uint64_t at_ns; /* when */
    const char *node;
    const char *error, *trace; /* from its error file */
    const char *tail;          /* last lines of its stderr */
    const char *log;           /* path of its stderr's file */
    char *storage;             /* of the texts in a copy; NULL: they are borrowed */
};

/* Workers of a node that did not fail by themselves. */
struct report_ends {
    int left;    /* with 0, before anything was stopped */
    int stopped; /* by the signal that stopped the round */
    int killed;  /* by SIGKILL after the grace period */
};

struct report_cfg {
    const char *job_id; /* borrowed for good */
    int nnodes, max_restarts;
    uint64_t start_ns;      /* the job's, on the clock of all other times */
    uint64_t start_real_ns; /* the same as time of day */
};

struct report;

int report_new(struct report **ret, const struct report_cfg *cfg);
void report_free(struct report *r);

/* A round begins: what was known of the one before becomes a line of the history. */
void report_round(struct report *r, int round, int world_size, uint64_t now_ns);
/* by_itself: nothing had been stopped yet when the news of it came. 0 or -ENOMEM. */
int report_exit_add(struct report *r, const struct report_exit *e, bool by_itself);
void report_ends_add(struct report *r, const struct report_ends *e);
/* The job is over. cause: one sentence, "" after success. */
void report_finish(struct report *r, const char *cause, int code, uint64_t now_ns);

/* What a worker wrote last, made fit for report_exit.tail: at most 20 lines of 400 bytes. */
int report_tail(const char *text, struct dd_buf *out);

/* The earliest failure of the round; NULL: none, or something else had ended the round before. */
const struct report_exit *report_cause(const struct report *r);

/* "ValueError: boom", "killed by the kernel, out of memory", or nothing: why, for a sentence. */
int report_why(const struct report_exit *e, struct dd_buf *out);
/* "rank 5 on node3 failed: ValueError: boom (exit code 1)" */
int report_sentence(const struct report_exit *e, struct dd_buf *out);
/* For a person: the sentence, then lines that begin with two spaces. After report_finish(). */
int report_text(const struct report *r, struct dd_buf *out);
/* brief: without what the workers wrote; for when the whole is too long for out (-EMSGSIZE). */
int report_json(const struct report *r, bool brief, struct dd_buf *out);

#endif
