/* The schedulers that ddctl submit knows, one row each. */
#ifndef DD_CMD_DDCTL_SUBMIT_SCHEDULER_H
#define DD_CMD_DDCTL_SUBMIT_SCHEDULER_H

#include "cmd/ddctl_submit_queue.h"

#include <limits.h>

struct submit_scheduler {
    const char *name;                /* value of --scheduler */
    const char *program, *directory; /* the submit command: in PATH, otherwise there */
    const char *options,
        *wait;          /* its option, and the one that makes it wait for the job; NULL: none */
    const char *cancel; /* command that ends a job */
    const char *queries[2][6]; /* commands that print its queues, with their arguments */
    struct submit_queue_kind queues;
    const char *job_id; /* see submit_script_write() */
    const char *template;
};

#define SUBMIT_SCHEDULER_NAMES "auto,slurm,pbs"

/* Find a scheduler by name, or by "auto" the first one whose submit command exists here. NULL:
 * none.
 */
const struct submit_scheduler *submit_scheduler_find(const char *name);
/* Find one of the scheduler's programs. False: it does not exist here. */
bool submit_scheduler_program(char ret[PATH_MAX], const struct submit_scheduler *s,
                              const char *name);

#endif
