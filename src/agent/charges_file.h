/* ~/.ddrun/JOB.charges: charges of nodes (--blame-window) for the next run of a job that the
 * scheduler requeues. The agent of the daemon's node writes the file, in a child process, so that
 * a home directory whose file server hangs does not stop the job. */
#ifndef DD_AGENT_CHARGES_FILE_H
#define DD_AGENT_CHARGES_FILE_H

#include "agent/agent_loop.h"
#include "agent/round.h"
#include "agent/round_history.h"
#include "agent/uplink.h"

struct charges_file;

struct charges_file_parts {
    const struct agent_loop *loop;
    struct uplink *uplink;
    struct round_history *history;
    const struct round *round; /* the child is not killed with the workers of this round */
};

int charges_file_new(struct charges_file **ret, const struct charges_file_parts *parts);
/* On the first node of a requeued job: add the charges of its last run to the history. Log a
 * warning if the file is invalid or cannot be read in time. Call then() at the end, perhaps before
 * this function returns. */
void charges_file_load(struct charges_file *f, void (*then)(void *arg), void *arg);
/* Ask this node's daemon for the charges. Call when JOIN has been sent to it. */
void charges_file_start(struct charges_file *f);
void charges_file_take(struct charges_file *f, const char *text); /* handle a reply of the daemon */
/* Call when the job has ended with this exit code. 0: remove the file. */
void charges_file_finish(struct charges_file *f, int code);
/* Wait until the file is written or removed, within a limit. NULL is fine. */
void charges_file_free(struct charges_file *f);

#endif
