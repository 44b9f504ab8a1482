/* Finds the ranks that hold up the others, from the times of their steps, or without such times
 * from their loads (rdzv/rank_load.h). Pure.
 *
 * In synchronous training all ranks take equally long for a step, since each waits for the slowest
 * one. So ranks are compared by the time of a step without the waits that the program has marked;
 * where some rank marks none, by processor time, which is less reliable (docs/health.md).
 *
 * A rank is slow if its time is at least twice the median of all ranks and the difference is at
 * least a quarter of the step and at least a millisecond; by processor time it must also be busy
 * for half of the step. A rank becomes a straggler when it has been slow in 3 reports in a row,
 * with 8 steps between the first and the last of them. It ceases to be one when, for as long, its
 * time has been below 1.5 times the median, or above the median by less than half of these
 * differences.
 *
 * Loads are compared until the first rank marks a step, and only once all ranks have sent a load. A
 * rank becomes a straggler when a sign (load_judge()) has held for LOAD_REPEATS turns. */
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
    STRAGGLER_BY_LOAD_BEFORE, /* ceased to be a straggler by load, as ranks mark steps now */
};

/* A straggler, and the medians of all ranks. */
struct straggler {
    int rank, node;
    bool slow; /* in stragglers_next(): true: new straggler; false: no longer one */
    enum straggler_by by;
    uint64_t us, median_us; /* time per step, if by work or processor time */
    struct rank_load load;  /* if by load */
    struct load_medians load_medians;
    enum load_sign sign;
};

/* The state of all ranks. */
struct steps_view {
    bool marked;  /* a rank has sent times */
    int64_t step; /* highest step; -1: none */
    int ranks;    /* number of ranks with enough complete steps */
    bool by_cpu;
    uint64_t wall_us, median_us; /* medians of all ranks */
};

int stragglers_new(struct stragglers **ret, int ranks); /* 0 or -ENOMEM */
void stragglers_free(struct stragglers *s);             /* NULL does nothing */

/* Assign `workers` ranks to a node, the first of them `first`. Initially all ranks are on node 0.
 */
void stragglers_place(struct stragglers *s, int first, int workers, int node);
/* Record the times, or the load, of a rank; a rank out of range is ignored. */
void stragglers_take(struct stragglers *s, int rank, const struct step_times *t);
void stragglers_take_load(struct stragglers *s, int rank, const struct rank_load *l);
/* Compare all ranks. Then call stragglers_next() until it returns false: it returns one rank for
 * each node that has got its first straggler (the slowest rank of the node) or lost its last one
 * (the rank that was returned when the node got its first straggler). */
void stragglers_judge(struct stragglers *s);
bool stragglers_next(struct stragglers *s, struct straggler *ret);

void stragglers_view(const struct stragglers *s, struct steps_view *ret);
/* Find the first straggler whose rank is at least `rank`. False: none. */
bool stragglers_from(const struct stragglers *s, int rank, struct straggler *ret);
/* Find the first rank that is at least *rank and has sent times. True: *rank is that rank, and *ret
 * has the times that it sent last. */
bool stragglers_times(const struct stragglers *s, int *rank, struct step_times *ret);

/* "rank 5 on node3 takes 10.2x the median time per step, waits not counted (0.512 s, median 0.05
 * s)" */
int straggler_text(const struct straggler *g, const char *node, struct dd_buf *out);

/* The times of a worker as text of the message STEPS: "LOCAL-RANK STEP COUNT N WALL CPU WORK;". */
int step_times_put(struct dd_buf *out, int local_rank, const struct step_times *t);
/* Parse the times at *at, of a local rank below `workers`, and advance *at. Returns 1; 0: no times
 * are left; -EPROTO. */
int step_times_take(const char **at, int workers, int *ret_local_rank, struct step_times *ret);

#endif
