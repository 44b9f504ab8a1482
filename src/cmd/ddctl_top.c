/* ddctl top: show the workers of a running job on the whole terminal. */
#include "base/columns.h"
#include "base/io.h"
#include "base/log.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "cmd/ddctl_top_json.h"
#include "cmd/ddctl_top_loop.h"
#include "cmd/ddctl_workers.h"
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLE_MAX = 64 << 20, PLAIN_COLUMNS = 512 };

struct top_command {
    const char *job, *format;
    bool once;
    uint64_t interval;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct top_command),
    {.name = "once",
     .kind = OPT_FLAG,
     .no_env = true,
     .group = "Output",
     .help = "print the state once as plain text",
     OPT_FIELD(struct top_command, once)},
    {JOB_FORMAT(struct top_command), .help = "text, or one JSON object, printed once"},
    {.name = "interval",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "2s",
     .no_env = true,
     .min = INT64_C(200000000),
     .max = INT64_C(3600000000000),
     .group = "Output",
     .help = "time between refreshes",
     OPT_FIELD(struct top_command, interval)},
};

const struct opt_table ddctl_top_options = {
    .program = "ddctl top",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about =
        "Shows the workers of a running job on the whole terminal, and keeps the screen up to "
        "date: the state, processor time, memory, GPUs and last line of each rank, failures, "
        "restarts and, if present, the failures charged to its node and the current step. Keys: "
        "arrows, PgUp and PgDn scroll, l follows the last lines of the selected rank, s shows the "
        "stacks of all workers, f the first failure, q quits.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

/* Append a sample (ddctl_top_model.h). */
static int ddctl_top_ask(const char *job, struct dd_buf *out, struct dd_err *err)
{
    json_t *status = NULL;
    int rc = job_ask(&status, &(struct job_question){.job = job, .what = "status", .text = ""},
                     err);
    if (rc < 0)
        return rc;
    struct dd_err none = {0};
    json_t *workers = workers_ask(job, "", false, &none);
    json_t *o = json_pack("{s:o,s:O?}", "status", status, "workers",
                          json_object_get(workers, "workers"));
    json_decref(workers);
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    return text == NULL || dd_buf_puts(out, text) < 0 ? dd_err_set(err, -ENOMEM, "out of memory")
                                                      : 0;
}

/* Take the first sample. Unless --once is given, wait while the job does not answer. */
static int ddctl_top_first(const struct top_command *o, struct dd_buf *out, struct dd_err *err)
{
    static const struct timespec pause = {.tv_sec = 1};
    const struct dd_log log = {.fd = STDERR_FILENO,
                               .colours = dd_log_has_colours(STDERR_FILENO),
                               .level = DD_LOG_NOTICE,
                               .who = "ddctl top"};
    int rc = ddctl_top_ask(o->job, out, err);
    if (rc == -ETIMEDOUT && !o->once)
        dd_log(&log, DD_LOG_NOTICE, "waiting for an answer (Ctrl-C ends ddctl): %s", err->text);
    while (rc == -ETIMEDOUT && !o->once) {
        (void)nanosleep(&pause, NULL);
        rc = ddctl_top_ask(o->job, out, err);
    }
    return rc;
}

/* Print a sample, in a child of the loop. */
static int ddctl_top_sample(void *arg)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(SAMPLE_MAX);
    struct dd_err err = {0};
    const int rc = ddctl_top_ask(arg, &out, &err);
    const char *text = rc == 0 ? dd_buf_str(&out) : err.text;
    return text == NULL || dd_write_full(STDOUT_FILENO, text, strlen(text)) < 0 || rc < 0;
}

/* Print the last lines of a rank, in a child of the loop. */
static int ddctl_top_log(void *arg, int rank)
{
    return workers_print_lines(arg, rank);
}

/* Take a second sample, to compute the processor time used between the two. */
static int ddctl_top_again(struct top_job *job, struct dd_err *err)
{
    static const struct timespec pause = {.tv_nsec = 500000000};
    DD_AUTO(buf) struct dd_buf sample = DD_BUF_INIT(SAMPLE_MAX);
    DD_AUTO(top_job) struct top_job now = {0};
    (void)nanosleep(&pause, NULL);
    int rc = ddctl_top_ask(job->id, &sample, err);
    if (rc == 0)
        rc = top_job_read(&now, (const char *)sample.data, sample.len, err);
    if (rc < 0)
        return rc;
    top_job_compare(&now, job);
    top_job_done(job);
    *job = now;
    now = (struct top_job){0};
    return 0;
}

static int ddctl_top_text(const struct top_job *job, struct dd_buf *out)
{
    struct top_view v = TOP_VIEW_INIT;
    v.columns = PLAIN_COLUMNS;
    v.utf8 = dd_columns_are_utf8(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG"));
    const int rc = top_view_plain(&v, job, out);
    top_view_done(&v);
    return rc;
}

static int ddctl_top_once(const struct top_job *job, bool json, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(SAMPLE_MAX);
    const int rc = json ? top_job_json(job, &out) : ddctl_top_text(job, &out);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : cmd_write(&ddctl_top_options, &out);
}

/* Fail where a full screen cannot be drawn, before the job is asked. */
static int ddctl_top_check_terminal(struct dd_err *err)
{
    struct dd_full_screen *s = NULL;
    const int rc = dd_full_screen_new(&s, STDOUT_FILENO, false, err);
    dd_full_screen_free(s);
    return rc < 0 ? dd_err_tip(err, -EINVAL,
                               "'ddctl top --once' prints the state as text, "
                               "'ddctl top --format=json' as JSON")
                  : 0;
}

static int ddctl_top_show(const struct top_command *o, struct top_job *job, struct dd_err *err)
{
    DD_AUTO(free) char *id = strdup(job->id);
    if (id == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    const struct top_loop_cfg cfg = {.job = id,
                                     .interval_ns = o->interval,
                                     .sample = ddctl_top_sample,
                                     .log = ddctl_top_log,
                                     .arg = id};
    const int sig = top_loop_run(&cfg, job, err);
    if (sig > 0) { /* end by the signal that ended the loop, after the terminal was restored */
        (void)signal(sig, SIG_DFL);
        (void)raise(sig);
    }
    return sig;
}

int ddctl_top(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf sample = DD_BUF_INIT(SAMPLE_MAX);
    DD_AUTO(top_job) struct top_job job = {0};
    struct top_command o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_top_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    const bool json = strcmp(o.format, "json") == 0;
    o.once |= json;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0 && !o.once)
        rc = ddctl_top_check_terminal(&err);
    if (rc == 0)
        rc = ddctl_top_first(&o, &sample, &err);
    if (rc == 0)
        rc = top_job_read(&job, (const char *)sample.data, sample.len, &err);
    if (rc == 0 && o.once)
        rc = ddctl_top_again(&job, &err);
    if (rc == 0)
        rc = o.once ? ddctl_top_once(&job, json, &err) : ddctl_top_show(&o, &job, &err);
    return rc < 0 ? job_fail(&ddctl_top_options, rc, &err) : rc;
}
