/* The checks that ddctl submit makes before it submits a job. */
#ifndef DD_CMD_DDCTL_SUBMIT_CHECK_H
#define DD_CMD_DDCTL_SUBMIT_CHECK_H

#include "base/log.h"
#include "base/strv.h"
#include "cmd/ddctl_submit_scheduler.h"

#include <stdbool.h>

struct submit_checks {
    const struct dd_log *log;
    bool force;      /* a failed check is a warning */
    bool dry_run;    /* nothing will be submitted: a check that cannot be made is a warning */
    unsigned failed; /* number of errors */
    bool warned;     /* a warning about a path below /tmp was logged */
};

/* Report a failed check. */
void submit_failed(struct submit_checks *c, const struct dd_err *err);

/* Let ddrun check its command line r->command for r->nodes nodes. Append to *found the name of the
 * script and the files that the job needs. */
void submit_check_command(struct submit_checks *c, const struct submit_request *r,
                          struct dd_strv *found);
/* Check that other nodes can see each of these files and directories, as far as can be known. */
void submit_check_shared(struct submit_checks *c, char *const *paths);
void submit_check_log(struct submit_checks *c, const struct submit_request *r);
/* Warn if nodes with GPUs would get a single CPU: the request names no number of CPUs. */
void submit_check_cpus(const struct submit_checks *c, const struct submit_scheduler *s,
                       const struct submit_request *r);
/* Check the queue and its limits. */
void submit_check_queue(struct submit_checks *c, const struct submit_scheduler *s,
                        const struct submit_request *r);

#endif
