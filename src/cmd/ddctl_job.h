/* Requests of ddctl to a running job, through an agent of this user on this machine. */
#ifndef DD_CMD_DDCTL_JOB_H
#define DD_CMD_DDCTL_JOB_H

#include "base/buf.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/strv.h"

#include <jansson.h>

struct job_question {
    const char *job;  /* --job; NULL: the only running job */
    const char *what; /* the request, see docs/protocol/control-1.md */
    const char *text; /* argument of the request, or "" */
    /* Called for each piece of an answer that lasts as long as the job; returning non-zero ends the
     * request. NULL: the answer is one JSON text that arrives at once. */
    int (*on_piece)(void *arg, const char *piece);
    void *arg;
};

/* Send the request and wait for the answer. -EINVAL: several jobs match, the wanted one is not
 * among the running jobs, or the job refused the request. -ENOENT: no job runs here. -ETIMEDOUT: an
 * agent or the daemon did not answer in time. The caller owns *ret (json_decref()), which is NULL
 * if on_piece is set. */
int job_ask(json_t **ret, const struct job_question *q, struct dd_err *err);

/* Append the ids of all jobs of this user that have an agent on this machine, each once.
 * *ret_silent: number of sockets like an agent's that did not answer. */
int job_list(struct dd_strv *ret, size_t *ret_silent, struct dd_err *err);

/* The row of --job, which all commands for running jobs have. */
#define JOB_ROW(type)                                                                              \
    {.name = "job",                                                                                \
     .kind = OPT_STRING,                                                                           \
     .metavar = "ID",                                                                              \
     .no_env = true,                                                                               \
     .example = "4711",                                                                            \
     .group = "Job",                                                                               \
     .help = "job to use, if you run several on this node",                                        \
     .more = "ID is the job's full name as 'ddctl status' prints it, or a part of the name "       \
             "between dots, such as the scheduler's number.",                                      \
     OPT_FIELD(type, job)}

/* --json for --format=json: the `foreign` options of the tables with the row below. */
extern const struct opt_foreign job_json[];

/* The row of --format, without its help texts. */
#define JOB_FORMAT(type)                                                                           \
    .name = "format", .kind = OPT_STRING, .metavar = "FORM", .choices = "text,json",               \
    .def = "text", .no_env = true, .group = "Output", OPT_FIELD(type, format)

/* Fail if there are arguments after the options; the tip names --job. */
int job_no_operands(const struct opt_result *res, int argc, char **argv, struct dd_err *err);
/* Log the error of the functions above, and return the exit code for it. */
int job_fail(const struct opt_table *t, int rc, const struct dd_err *err);

const char *
json_text(const json_t *o,
          const char *name); /* Return the text of a member, or "" if there is none. Lent. */
int json_number(const json_t *o, const char *name, int otherwise);

#endif
