/* ddctl metrics: print the metrics of a running job. */
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "report/metrics_json.h"

#include <errno.h>
#include <string.h>

struct metrics_options {
    const char *job, *format;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct metrics_options),
    {JOB_FORMAT(struct metrics_options), .help = "text for Prometheus, or one JSON object"},
};

const struct opt_table ddctl_metrics_options = {
    .program = "ddctl metrics",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Prints the metrics of a running job as OpenMetrics text: nodes, workers, restarts, "
             "times, operations of the store.",
    OPT_ROWS(rows),
    .foreign = job_json,
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
               : dd_err_set(err, -ECONNRESET,
                            "the connection to the job ended before all metrics had arrived");
}

static int ddctl_metrics_convert(struct dd_buf *text, struct dd_buf *json, struct dd_err *err)
{
    const char *s = dd_buf_str(text);
    int rc = s != NULL ? metrics_json(s, json) : -ENOMEM;
    return rc < 0 ? dd_err_set(err, rc, "cannot convert the metrics to JSON: %s",
                               rc == -EINVAL ? "a line is malformed" : strerror(-rc))
                  : 0;
}

int ddctl_metrics(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    DD_AUTO(buf) struct dd_buf json = DD_BUF_INIT(8 << 20);
    struct metrics_options o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_metrics_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = ddctl_metrics_ask(&o, &out, &err);
    if (rc == 0 && strcmp(o.format, "json") == 0)
        rc = ddctl_metrics_convert(&out, &json, &err);
    return rc < 0 ? job_fail(&ddctl_metrics_options, rc, &err)
                  : cmd_write(&ddctl_metrics_options, json.len > 0 ? &json : &out);
}
