/* Writes the metrics of a job as text that both an OpenMetrics 1.0 parser and a parser of
 * Prometheus' text format accept. The number of lines does not grow with the job: nodes and workers
 * are counted by state. Src: docs/metrics.md. */
#ifndef DD_REPORT_METRICS_TEXT_H
#define DD_REPORT_METRICS_TEXT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

enum metric {
    METRIC_START_TIME, /* Unix time in ns; durations below are in ns, too */
    METRIC_EXIT_CODE,
    METRIC_MAX_RESTARTS,
    METRIC_ROUNDS,
    METRIC_RESTARTS,
    METRIC_LOST_NODES,
    METRIC_FAILED_WORKERS,
    METRIC_REFUSED_CONNECTIONS,
    METRIC_STARTUP,
    METRIC_RECOVERY,
    METRIC_RUNNING,
    METRIC_STEP,
    METRIC_STORE_KEYS,
    METRIC_STORE_MEMORY,
    METRIC_STORE_MEMORY_LIMIT,
    METRIC_STORE_WAITING,
    METRIC_STORE_CONNECTIONS,
    METRIC_STORE_OPENED,
    METRIC_DAEMON_MEMORY,
    METRIC_DAEMON_CPU,
    METRIC_NOTIFY_QUEUED,
    METRIC_NOTIFY_DROPPED,
    METRICS_MAX
};

/* Count for one value of a label. */
struct metrics_count {
    const char *name;
    uint64_t n;
};

struct metrics_counts {
    const struct metrics_count *v;
    size_t n;
};

/* The pointers are borrowed during metrics_text(). */
struct metrics {
    const char *job_id, *version, *node; /* node: name of the daemon's node */
    struct {
        bool known; /* false: the sample is left out */
        uint64_t v;
    } value[METRICS_MAX];
    struct metrics_counts states;         /* states of the job: 1 for the present one, else 0 */
    struct metrics_counts nodes, workers; /* numbers of nodes and workers by state */
    struct metrics_counts operations;     /* numbers of the store's operations by kind */
};

static inline void metrics_set(struct metrics *m, enum metric which, uint64_t value)
{
    m->value[which].known = true;
    m->value[which].v = value;
}

/* Append the text, "# EOF" at its end. 0, -ENOMEM or -EMSGSIZE. */
int metrics_text(const struct metrics *m, struct dd_buf *out);

#endif
