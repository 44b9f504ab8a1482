/* The job script that ddctl submit passes to a scheduler: templates and their placeholders.
 * Pure. */
#ifndef DD_CMD_DDCTL_SUBMIT_SCRIPT_H
#define DD_CMD_DDCTL_SUBMIT_SCRIPT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct submit_request {
    const char *name, *queue, *account;      /* NULL: not set */
    const char *log;                         /* file name; %j stands for the id of the job */
    const char *directory;                   /* the working directory of the job */
    char *const *env;                        /* the environment of the submitting shell */
    int nodes, gpus_per_node, cpus_per_node; /* 0: not set */
    uint64_t seconds;                        /* time limit; 0: not set */
    char *const *command;                    /* the words of the ddrun command, NULL-terminated */
};

/* Expand a template. A line with a placeholder that has no value is left out. An unknown
 * placeholder, and a template without @COMMAND@, are errors. job_id: variable that holds the id of
 * the job if @LOG@ is a word of the shell; NULL: the scheduler itself replaces %j in @LOG@. 0 or
 * -errno with a message. */
int submit_script_write(struct dd_buf *out, const char *template, const char *job_id,
                        const struct submit_request *r, struct dd_err *err);

/* True if text is safe in a directive of every scheduler: a name of letters, digits and "._-",
 * with `more` characters. */
bool submit_is_plain(const char *text, const char *more);
/* True if log is plain, names a file, and contains '%' only in "%j". */
bool submit_is_log(const char *log);
/* Append the name of the log of a job. 0 or -errno. */
int submit_log_name(struct dd_buf *out, const char *log, const char *job_id);

/* Parse "D-HH:MM:SS", "HH:MM:SS", or a duration such as "90m". 0 or -EINVAL. */
int submit_time_parse(const char *text, uint64_t *ret_seconds);

#endif
