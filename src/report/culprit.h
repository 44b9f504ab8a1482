/* Writes the line of the report about the culprit: the rank that failed first, or the rank for
 * which the others waited. Pure. */
#ifndef DD_REPORT_CULPRIT_H
#define DD_REPORT_CULPRIT_H

#include "report/rank_set.h"
#include "report/report.h"

struct failure_cause; /* report/causes.h */

/* Which process is to blame for a failure. */
enum report_blame {
    REPORT_BLAME_WORKER,
    REPORT_BLAME_SENDER,  /* another process sent the worker a signal */
    REPORT_BLAME_UNKNOWN, /* another rank, which is not known */
};
/* Append the rank to blame for e, the failure of the first line, and the reason: "rank 5 on node3,
 * the first of 8 ranks to fail". If the ranks for which the others waited are to blame, add these
 * to ret. 0, -ENOMEM or -EMSGSIZE. */
int report_culprit_why(const struct report *r, const struct report_exit *e, struct rank_set *ret,
                       enum report_blame *ret_blame, struct dd_buf *out);

/* Return the known cause of e, the failure of the first line: the cause of this failure itself, or
 * that of the delay of the ranks for which the others waited. NULL: unknown. */
const struct failure_cause *report_cause(const struct report *r, const struct report_exit *e);

/* Return the tip for report_cause(); NULL: there is none. The tip does not advise to look for a
 * rank that the report names. */
const char *report_tip(const struct report *r, const struct report_exit *e);

#endif
