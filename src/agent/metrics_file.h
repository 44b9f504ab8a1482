/* --metrics: the file with the metrics of the job, which the agent of the daemon's node writes. */
#ifndef DD_AGENT_METRICS_FILE_H
#define DD_AGENT_METRICS_FILE_H

#include <stdint.h>

struct agent;

enum { METRICS_FILE_REQUEST = 0 }; /* id of its CTL_REQUEST; those of ddctl begin with 1 */

/* Ask this node's daemon for the metrics. Call when JOIN has been sent to it. */
void metrics_file_start(struct agent *a);
void metrics_file_take(struct agent *a, const char *text); /* a reply of the daemon */
/* Wait until the last text is written, within a limit. */
void metrics_file_free(struct agent *a);

#endif
