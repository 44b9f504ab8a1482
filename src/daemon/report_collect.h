/* Fill the report from the events of the journal, whose times are on the daemon's clock. */
#ifndef DD_DAEMON_REPORT_COLLECT_H
#define DD_DAEMON_REPORT_COLLECT_H

#include "base/err.h"
#include "daemon/journal.h"

#include <stdint.h>

struct dd_buf;
struct report_collect;

/* Offset of an agent's clock from the daemon's, estimated from its fastest message. */
struct report_clock {
    int64_t behind_ns; /* the daemon's clock minus the agent's, plus the fastest transit */
    int known;
};
void report_clock_update(struct report_clock *c, int64_t sent_ns, uint64_t here_ns);
uint64_t report_clock_time(const struct report_clock *c, int64_t there_ns, uint64_t here_ns);

struct report_collect_cfg {
    const char *job_id; /* borrowed */
    int nnodes, max_restarts;
    uint64_t start_ns; /* start time of the job; 0: now */
};
int report_collect_new(struct report_collect **ret, struct journal *j,
                       const struct report_collect_cfg *cfg, struct dd_err *err);
void report_collect_free(struct report_collect *c); /* the journal must not be used afterwards */

/* Return the exit code of the job: that of report_first_failure(), unless the round machine decided
 * for 0 or no failure of a worker ended the last round. */
int report_collect_code(const struct report_collect *c, int machine_code);
/* Append the texts for FINISH: the report for users and its JSON. */
void report_collect_texts(const struct report_collect *c, struct dd_buf *text, struct dd_buf *json);

#endif
