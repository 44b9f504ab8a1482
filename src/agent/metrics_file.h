/* --metrics: the file with the metrics of the job, which the agent of the daemon's node writes. */
#ifndef DD_AGENT_METRICS_FILE_H
#define DD_AGENT_METRICS_FILE_H

#include "agent/agent_loop.h"
#include "agent/round.h"
#include "agent/uplink.h"

struct metrics_file;

struct metrics_file_parts {
    const struct agent_loop *loop;
    struct uplink *uplink;
    const struct round *round; /* the child is not killed with the workers of this round */
};

int metrics_file_new(struct metrics_file **ret, const struct metrics_file_parts *parts,
                     const char *path); /* path NULL: no file, and no child */
/* Ask this node's daemon for the metrics. Call when JOIN has been sent to it. */
void metrics_file_start(struct metrics_file *f);
/* Handle a reply of the daemon. */
void metrics_file_take(const struct metrics_file *f, const char *text);
/* Wait until the last text is written, within a limit. NULL is fine. */
void metrics_file_free(struct metrics_file *f);

#endif
