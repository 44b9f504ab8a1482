/* The report of a job: the first failure, the fate of the other workers, and durations. Pure: the
 * caller passes events with times of one clock and gets text for users and JSON (docs/report.md).
 *
 * Memory is bounded: the report keeps the earliest REPORT_EXITS failures of a round and the first
 * REPORT_ROUNDS rounds, and counts all failures. */
#ifndef DD_REPORT_REPORT_H
#define DD_REPORT_REPORT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    REPORT_EXITS = 32,
    REPORT_ROUNDS = 64,
    REPORT_WARNINGS = 32,
    REPORT_STRAGGLERS = 32,
    REPORT_CHARGES = 64,
    REPORT_TEXT_MAX = 15000,  /* bytes of the report for users */
    REPORT_JSON_MAX = 250000, /* bytes of the report as JSON */
};

/* A failed worker. Texts are borrowed as arguments; NULL and "" mean unknown. */
struct report_exit {
    int rank, local_rank;
    int pid;          /* 0: could not be started */
    int code, signal; /* signal 0: none; code after a signal: 128 + signal */
    bool oom;         /* the OOM killer killed a process in the worker's cgroup */
    uint64_t at_ns;   /* time of the exit */
    const char *node;
    const char *error; /* message of the error file, or ddrun's own reason */
    const char *trace; /* from the worker's error file */
    const char *tail;  /* last lines of stderr, or of stdout if stderr is empty */
    const char *log;   /* path of the file with the stderr of the worker */
    char *storage;     /* owner of the texts in a copy; NULL: the texts are borrowed */
};

/* Workers of a node that did not fail by themselves. */
struct report_ends {
    int left;    /* exited with 0 before the round was stopped */
    int stopped; /* ended by the signal that stopped the round */
    int killed;  /* ended by SIGKILL after the grace period */
    /* The first of the workers that `left` counts; first_node NULL: unknown. */
    const char *first_node; /* borrowed as an argument */
    int first_rank;
    uint64_t first_ns; /* time of the exit of first_rank */
};

struct report_cfg {
    const char *job_id; /* borrowed until report_free() */
    int nnodes, max_restarts;
    uint64_t start_ns;      /* start of the job, on the clock of all other times */
    uint64_t start_real_ns; /* start of the job, as wall-clock time */
};

struct report;
struct stacks; /* report/stacks.h */

int report_new(struct report **ret, const struct report_cfg *cfg);
void report_free(struct report *r);

/* Start a round; the previous round becomes an entry of the history. */
void report_round(struct report *r, int round, int world_size, uint64_t now_ns);
/* Add a failure. by_itself: no stop had been requested when its message arrived. 0 or -ENOMEM. */
int report_exit_add(struct report *r, const struct report_exit *e, bool by_itself);
/* Take ownership of the content of s, the sorted stacks of the round. */
void report_stacks_take(struct report *r, struct stacks *s);
/* Add the workers of a node that did not fail by themselves. 0 or -ENOMEM. */
int report_ends_add(struct report *r, const struct report_ends *e);
/* Add a warning about a node, unless the report has the same one already. Beyond REPORT_WARNINGS
 * the warning is dropped. 0 or -ENOMEM. */
int report_warning_add(struct report *r, const char *node, const char *text);
/* Record that this rank of the node holds up the others from now on. Beyond REPORT_STRAGGLERS the
 * record is dropped. 0 or -ENOMEM. */
int report_straggler_add(struct report *r, const char *node, int rank, const char *text,
                         uint64_t now_ns);
void report_straggler_over(struct report *r, const char *node, uint64_t now_ns);
/* Set the number of rounds whose first failure is charged to the node; why: the last failure.
 * Beyond REPORT_CHARGES nodes the charge is dropped. 0 or -ENOMEM. */
int report_charge_set(struct report *r, const char *node, int n, const char *why);
/* Record that an unfit node has ended the job. check: the health check that failed; "": unknown. 0
 * or -ENOMEM. */
int report_unfit_set(struct report *r, const char *node, const char *check, const char *why);
/* Set the reason why the job ends although restarts are left. 0 or -ENOMEM. */
int report_verdict_set(struct report *r, const char *text);
/* End the job. cause: one sentence; "" after success. */
void report_finish(struct report *r, const char *cause, int code, uint64_t now_ns);

/* Append the last output of a worker for report_exit.tail: at most 20 lines of 400 bytes. */
int report_tail(const char *text, struct dd_buf *out);

/* Return the failure of the first line: the earliest that is not a consequence of another
 * (report/causes.h), or the earliest if all are. NULL: none, or another event had ended the round
 * before. After a hang or a timeout, the line about the culprit may name another rank, which need
 * not have failed (report/culprit.h). */
const struct report_exit *report_first_failure(const struct report *r);

/* Append the cause, "ValueError: boom" or "killed by the kernel, out of memory", if it is known. */
int report_why(const struct report_exit *e, struct dd_buf *out);
/* Append "rank 5 on node3 failed: ValueError: boom (exit code 1)". */
int report_sentence(const struct report_exit *e, struct dd_buf *out);
/* Append the report for users: one sentence, then indented lines. Call after report_finish(). */
int report_text(const struct report *r, struct dd_buf *out);
/* Append the report as JSON. brief: omit output of workers. -EMSGSIZE: too long for out; -ENOMEM.
 */
int report_json(const struct report *r, bool brief, struct dd_buf *out);

#endif
