/* The partitions of Slurm and the queues of PBS and Grid Engine, and whether a job fits into one.
 * Pure. */
#ifndef DD_CMD_DDCTL_SUBMIT_QUEUE_H
#define DD_CMD_DDCTL_SUBMIT_QUEUE_H

#include "cmd/ddctl_submit_script.h"

struct submit_queue {
    char name[128];
    bool is_default;
    char closed[32];             /* reason why the queue accepts no jobs; "": it accepts jobs */
    int least_nodes, most_nodes; /* limits per job; 0: none */
    int nodes;                   /* number of nodes of the queue; 0: unknown */
    uint64_t most_seconds;       /* limit per job; 0: none */
};

/* How a scheduler names and prints its queues. */
struct submit_queue_kind {
    const char *word; /* the scheduler's term for a queue: "partition", "queue" */
    /* Read the next queue; false at the end. */
    bool (*next)(const char **at, struct submit_queue *ret);
};

bool submit_next_slurm_queue(const char **at, struct submit_queue *ret);
bool submit_next_pbs_queue(const char **at, struct submit_queue *ret);
bool submit_next_grid_engine_queue(const char **at, struct submit_queue *ret); /* names alone */

enum { SUBMIT_ERRORS_MAX = 8 };

/* Compare a request with the queues that the scheduler's queries have printed. Fill errs and
 * return their number. If there are more problems than entries, the last entry describes the last
 * problem. */
size_t submit_queue_check(const struct submit_queue_kind *kind, const char *printed,
                          const struct submit_request *r, struct dd_err errs[SUBMIT_ERRORS_MAX]);

#endif
