/* ddctl signal: send USR1 or USR2 to the workers of all nodes, or stop a running job. */
#include "base/log.h"
#include "base/sig.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include <errno.h>
#include <unistd.h>

struct signal_options {
    const char *job;
};

static const struct opt_row rows[] = {JOB_ROW(struct signal_options)};

const struct opt_table ddctl_signal_options = {
    .program = "ddctl signal",
    .version = PACKAGE_VERSION,
    .usage = "[options] SIGNAL",
    .about = "Sends USR1 or USR2 to all workers of the job, or stops the job with TERM, INT, HUP "
             "or QUIT.",
    .mixed = true,
    OPT_ROWS(rows),
};

/* Warn if the signal has had no effect. `reached` is missing if the signal ends the job. */
static void warn_if_none(const json_t *answer, const char *name)
{
    const struct dd_log log = {.who = "ddctl signal",
                               .fd = STDERR_FILENO,
                               .level = DD_LOG_WARN,
                               .colours = dd_log_has_colours(STDERR_FILENO)};
    if (json_number(answer, "reached", -1) == 0 && json_number(answer, "silent", 0) == 0)
        dd_log(&log, DD_LOG_WARN,
               "SIG%s has had no effect: no worker catches it"
               "\n  tip: install a handler in the program",
               dd_signal_name(dd_signal_parse(name)));
}

int ddctl_signal(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct signal_options o = {0};
    struct dd_err err = {0};
    json_t *answer = NULL;
    int code = cmd_options_alone(&ddctl_signal_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = argc - res.script == 1
                 ? 0
                 : dd_err_tip(
                       &err,
                       dd_err_set(&err, -EINVAL, "expected one signal, got %d", argc - res.script),
                       "for example: ddctl signal USR1");
    if (rc == 0)
        rc = job_ask(
            &answer,
            &(struct job_question){.job = o.job, .what = "signal", .text = argv[res.script]}, &err);
    if (rc == 0)
        warn_if_none(answer, argv[res.script]);
    json_decref(answer);
    return rc < 0 ? job_fail(&ddctl_signal_options, rc, &err) : 0;
}
