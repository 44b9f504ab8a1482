/* ddctl metrics: print the metrics of a running job. */
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include <errno.h>
#include <string.h>

struct metrics_options {
    const char *job;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct metrics_options),
};

const struct opt_table ddctl_metrics_options = {
    .program = "ddctl metrics",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Prints the metrics of a running job as OpenMetrics text: nodes, workers, restarts, "
             "times, operations of the store.",
    OPT_ROWS(rows),
};

static int ddctl_metrics_on_piece(void *arg, const char *piece)
{
    struct dd_buf *out = arg;
    return dd_buf_puts(out, piece);
}

/* A complete text ends with the line "# EOF"; the job may end before all of it has arrived. */
static bool ddctl_metrics_is_complete(struct dd_buf *out)
{
    static const char eof[] = "# EOF\n";
    const size_t n = sizeof(eof) - 1;
    return out->len >= n && memcmp(out->data + out->len - n, eof, n) == 0;
}

static int ddctl_metrics_ask(const struct metrics_options *o, struct dd_buf *out,
                             struct dd_err *err)
{
    json_t *none = NULL;
    const struct job_question q = {.job = o->job,
                                   .what = "metrics",
                                   .text = "",
                                   .on_piece = ddctl_metrics_on_piece,
                                   .arg = out};
    int rc = job_ask(&none, &q, err);
    return rc < 0 || ddctl_metrics_is_complete(out)
               ? rc
               : dd_err_set(err, -ECONNRESET, "the job ended before its daemon answered");
}

int ddctl_metrics(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    struct metrics_options o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_metrics_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = ddctl_metrics_ask(&o, &out, &err);
    return rc < 0 ? job_fail(&ddctl_metrics_options, rc, &err)
                  : cmd_write(&ddctl_metrics_options, &out);
}
