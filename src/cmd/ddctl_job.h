/* A running job, as ddctl finds it: through an agent of this user on this machine. */
#ifndef DD_CMD_DDCTL_JOB_H
#define DD_CMD_DDCTL_JOB_H

#include "base/buf.h"
#include "base/err.h"
#include "base/opt.h"

#include <jansson.h>

struct job_question {
    const char *job;  /* --job; NULL: the only one that is here */
    const char *what; /* docs/protocol/control-1.md */
    const char *text; /* "" where there is nothing more to say */
    /* A piece of an answer that comes for as long as the job lasts; NULL: it comes at once and is
     * JSON. Not 0: enough. */
    int (*on_piece)(void *arg, const char *piece);
    void *arg;
};

/* -EINVAL: which job is meant, or what was asked, is not right; other errors: the job cannot be
 * asked. *ret is given (json_decref()), or NULL with on_piece. */
int job_ask(json_t **ret, const struct job_question *q, struct dd_err *err);

/* The row of --job, which all these commands have. */
#define JOB_ROW(type)                                                                              \
    {.name = "job",                                                                                \
     .kind = OPT_STRING,                                                                           \
     .metavar = "ID",                                                                              \
     .no_env = true,                                                                               \
     .example = "4711",                                                                            \
     .group = "Job",                                                                               \
     .help = "job to use, if you run several on this node",                                        \
     .more = "ID is the job's full name as 'ddctl status' prints it, or a part of it between "     \
             "dots: "                                                                              \
             "the scheduler's number.",                                                            \
     OPT_FIELD(type, job)}

/* The row of --format, but for its texts. */
#define JOB_FORMAT(type)                                                                           \
    .name = "format", .kind = OPT_STRING, .metavar = "FORM", .choices = "text,json",               \
    .def = "text", .no_env = true, .group = "Output", OPT_FIELD(type, format)

/* Nothing may stand behind the options. */
int job_no_operands(const struct opt_result *res, int argc, char **argv, struct dd_err *err);
/* The exit code of what these functions return; says the error. */
int job_fail(const struct opt_table *t, int rc, const struct dd_err *err);

const char *json_text(const json_t *o, const char *name); /* "" where it is not there; lent */
int json_number(const json_t *o, const char *name, int otherwise);

#endif
