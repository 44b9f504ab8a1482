/* What 'ddctl top' shows of a job: one row for each worker, and for each node without workers.
 * Pure.
 *
 * A sample is one JSON object with the daemon's answers: "status", and "workers", which is null
 * unless the agents have answered (docs/protocol/control-1.md). */
#ifndef DD_CMD_DDCTL_TOP_MODEL_H
#define DD_CMD_DDCTL_TOP_MODEL_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOP_ROWS = 1 << 18 /* further workers are counted, but not shown */ };

/* The GPUs of a worker. */
struct top_gpu {
    int n;
    int percent;                      /* mean share of the time in which a kernel ran */
    int64_t memory;                   /* bytes in use */
    int64_t clock_mhz, clock_max_mhz; /* of the GPU that is furthest below its highest clock */
};

/* Return a number of a GPU, below 0: unknown. */
int64_t top_gpu_number(const json_t *gpu, const char *name);

/* Texts are lent by top_job.sample. Numbers below 0 are not known. */
struct top_row {
    int rank, local_rank; /* -1: a node without workers */
    const char *node, *state;
    int charges;           /* failures that began on the node */
    const char *failure;   /* failure of the rank in this round; "": none */
    const char *line;      /* last line of output; "": not known */
    int pid;               /* 0: not known, or the worker has ended */
    int64_t cpu_ms, at_ms; /* processor time, and the time at which it was read */
    int64_t memory;        /* bytes */
    int cpu_percent;       /* since the previous sample */
    int64_t step;          /* current step */
    int64_t step_us;       /* median time of the last steps */
    const json_t *gpus;    /* GPUs as in the sample; NULL: none */
    struct top_gpu gpu;
};

struct top_job {
    json_t *sample;
    const char *id, *state, *missing;
    int round, restarts, max_restarts;
    int nodes, workers, running, failed; /* numbers of nodes and workers in the round */
    int64_t step;
    int64_t seconds; /* seconds since the start of the daemon */
    struct top_row *rows;
    size_t n;
    bool has_charges, has_memory, has_cpu, has_steps, has_gpus;
    int64_t memory; /* memory of all workers, in bytes */
    int cpu_percent;
};

/* Read a sample. Return 0, -EPROTO if the text is not a sample, or -ENOMEM, with a message. The
 * caller calls top_job_done(), also after a failure. */
int top_job_read(struct top_job *ret, const char *text, size_t n, struct dd_err *err);
/* Compute the processor time since an earlier sample. */
void top_job_compare(struct top_job *j, const struct top_job *before);
void top_job_done(struct top_job *j);
/* Return the ranks that hold up the others, {rank, node, text}, lent by the sample; NULL: none. */
const json_t *top_job_stragglers(const struct top_job *j);
/* Append the first failure of the round as text of several lines, or a sentence that there is
 * none. */
int top_job_first_failure(const struct top_job *j, struct dd_buf *out);

static inline void dd_auto_top_job(struct top_job *j)
{
    top_job_done(j);
}

#endif
