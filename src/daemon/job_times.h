/* Counters and durations of a job (start, running, recovery), computed from its events. Pure:
 * events carry their time. */
#ifndef DD_DAEMON_JOB_TIMES_H
#define DD_DAEMON_JOB_TIMES_H

#include "daemon/journal.h"

#include <stdbool.h>
#include <stdint.h>

struct job_times {
    uint64_t start_ns;    /* start of the job; 0: another daemon started the job */
    uint64_t running_at;  /* start of the running phase; 0: not all workers are running */
    uint64_t running_ns;  /* sum of the finished running phases */
    uint64_t stopped_at;  /* end of the last round; 0: none, or the next one runs */
    uint64_t startup_ns;  /* from start_ns to the first running phase; 0: unknown */
    uint64_t recovery_ns; /* from the last stop to the next running phase; 0: none */
    uint64_t lost_nodes, failed_workers;
    bool finished;
    int code; /* if finished */
};

/* The first daemon of a job passes the start of the job. A later daemon passes 0 and its own start,
 * from which recovery then counts. */
void job_times_init(struct job_times *t, uint64_t start_ns, uint64_t taken_over_ns);
void job_times_event(struct job_times *t, const struct journal_event *e);
uint64_t job_times_running(const struct job_times *t, uint64_t now_ns);

#endif
