/* Finds the ranks that hold up the others, from the times of their steps, or without such times
 * from their loads (rdzv/rank_load.h). Pure.
 *
 * In synchronous training all ranks take equally long for a step, since each waits for the slowest
 * one. So ranks are compared by the time of a step without the waits that the program has marked;
 * where some rank marks none, by processor time, which tells less (docs/health.md).
 *
 * A rank is slow if its time is at least twice the median of all ranks and the difference is a
 * quarter of the step and a millisecond; by processor time it must also be busy for half of the
 * step. A rank becomes a straggler when it has been slow in 3 reports in a row, with 8 steps
 * between the first and the last of them, and ceases to be one when it has been below 1.5 times the
 * median as long.
 *
 * Loads count until the first rank has marked a step. They are compared once all ranks have sent
 * one; a rank becomes a straggler when the comparison has held for LOAD_REPEATS further ones. */
#ifndef DD_RDZV_STRAGGLERS_H
#define DD_RDZV_STRAGGLERS_H

#include "base/buf.h"
#include "base/step_page.h"
#include "rdzv/rank_load.h"

struct stragglers;

enum straggler_by {
    STRAGGLER_BY_WORK,
    STRAGGLER_BY_CPU,
    STRAGGLER_BY_LOAD,
    STRAGGLER_BY_LOAD_BEFORE, /* it has ceased because ranks mark steps now */
};

/* A rank and the median of all. */
struct straggler {
    int rank, node;
    bool slow; /* in stragglers_next(): it has become a straggler; else it has ceased */
    enum straggler_by by;
    uint64_t us, median_us; /* by work, or processor time */
    struct rank_load load;  /* by load */
    struct load_medians load_medians;
    enum load_sign sign;
};

/* The state of all ranks. */
struct steps_view {
    bool marked;  /* a rank has sent times */
    int64_t step; /* highest one; -1: none */
    int ranks;    /* that have completed enough steps */
    bool by_cpu;
    uint64_t wall_us, median_us; /* medians of all ranks */
};

int stragglers_new(struct stragglers **ret, int ranks); /* 0 or -ENOMEM */
void stragglers_free(struct stragglers *s);             /* NULL is fine */

/* These ranks are those of that node; all are of node 0 otherwise. */
void stragglers_place(struct stragglers *s, int first, int workers, int node);
/* Take the times, or the load, of a rank; one out of range is ignored. */
void stragglers_take(struct stragglers *s, int rank, const struct step_times *t);
void stragglers_take_load(struct stragglers *s, int rank, const struct rank_load *l);
/* Compare all ranks. Then call stragglers_next() until it returns false: it returns each node once
 * that has got its first straggler, with that rank, the slowest of the node, or lost its last, with
 * the rank that was returned at first. */
void stragglers_judge(struct stragglers *s);
bool stragglers_next(struct stragglers *s, struct straggler *ret);

void stragglers_view(const struct stragglers *s, struct steps_view *ret);
/* Find the first straggler whose rank is at least `rank`. False: none. */
bool stragglers_from(const struct stragglers *s, int rank, struct straggler *ret);
/* Find the first rank from *rank on that has sent times, and the last ones that it sent. False:
 * none; otherwise *rank is that rank. */
bool stragglers_times(const struct stragglers *s, int *rank, struct step_times *ret);

/* "rank 5 on node3 takes 10.2x the median time per step, waits not counted (0.512 s, median 0.05
 * s)" */
int straggler_text(const struct straggler *g, const char *node, struct dd_buf *out);

/* The times of a worker as text of the message STEPS: "LOCAL-RANK STEP COUNT N WALL CPU WORK;". */
int step_times_put(struct dd_buf *out, int local_rank, const struct step_times *t);
/* Take the next of them, for a local rank below `workers`. 1; 0: no more; -EPROTO. */
int step_times_take(const char **at, int workers, int *ret_local_rank, struct step_times *ret);

#endif
