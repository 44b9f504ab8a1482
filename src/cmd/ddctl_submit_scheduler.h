/* The schedulers that ddctl submit supports, one row each. */
#ifndef DD_CMD_DDCTL_SUBMIT_SCHEDULER_H
#define DD_CMD_DDCTL_SUBMIT_SCHEDULER_H

#include "cmd/ddctl_submit_queue.h"

#include <limits.h>

struct submit_scheduler {
    const char *name;                /* value of --scheduler */
    const char *program, *directory; /* the submit command, searched in PATH, then in `directory` */
    const char *options;             /* option of the submit command; NULL: none */
    const char *wait[2];             /* options with which the submit command waits for the job;
                                        NULL: none */
    bool terminal; /* the submit command prints the id at once only to a terminal, otherwise when
                      the job ends */
    const char *cancel; /* command that ends a job */
    /* True if the submit command at this path is this scheduler's; NULL: always. */
    bool (*owns)(const char *path);
    const char *queries[2][6]; /* commands, with their arguments, that print the queues */
    struct submit_queue_kind queues;
    bool one_cpu;         /* without a number of CPUs, a node usually gets one CPU */
    const char *job_id;   /* see submit_script_write() */
    const char *template; /* NULL: none fits all sites */
};

#define SUBMIT_SCHEDULER_NAMES "auto,slurm,pbs,gridengine"

/* Find a scheduler by name, or by "auto" the first one whose submit command exists here. NULL:
 * none. */
const struct submit_scheduler *submit_scheduler_find(const char *name);
/* Find one of the scheduler's programs. False: it does not exist on this machine. */
bool submit_scheduler_program(char ret[PATH_MAX], const struct submit_scheduler *s,
                              const char *name);

#endif
