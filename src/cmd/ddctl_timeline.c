/* ddctl timeline: summarize the file of ddrun --timeline. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "report/report_read.h"
#include "report/timeline_summary.h"

#include <errno.h>
#include <string.h>

enum { FILE_MAX = 1 << 30, SUMMARY_MAX = 1 << 20 };

struct timeline_options {
    const char *format;
};

static const struct opt_row rows[] = {
    {JOB_FORMAT(struct timeline_options), .help = "text, or one JSON object"},
};

const struct opt_table ddctl_timeline_options = {
    .program = "ddctl timeline",
    .version = PACKAGE_VERSION,
    .usage = "[options] FILE",
    .about = "Prints where the time of a job went, from the FILE that 'ddrun --timeline=FILE' has "
             "written: for each phase of the start the median and the slowest node, for each round "
             "the time to stop and to restart.",
    .mixed = true,
    OPT_ROWS(rows),
    .foreign = job_json,
};

static bool ddctl_timeline_is_report(const char *text, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(SUMMARY_MAX);
    struct dd_err err = {0};
    return report_read(text, n, &out, &err) == 0;
}

static int ddctl_timeline_summarize(struct dd_buf *out, const char *path, bool as_json,
                                    struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(FILE_MAX);
    int rc = dd_read_file(path, &text, err);
    if (rc < 0)
        return rc;
    const char *data = text.len > 0 ? (const char *)text.data : "";
    rc = (as_json ? timeline_summary_json : timeline_summary)(out, data, text.len, err);
    if (rc == -EINVAL && ddctl_timeline_is_report(data, text.len))
        return dd_err_tip(err, dd_err_set(err, rc, "'%s' is a report, not a timeline", path),
                          "'ddctl report %s' prints it", path);
    return rc < 0 ? dd_err_where(err, rc, "'%s'", path) : 0;
}

int ddctl_timeline(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(SUMMARY_MAX);
    struct dd_err err = {0};
    struct timeline_options o = {0};
    const int code = cmd_options_alone(&ddctl_timeline_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    const int rc = argc - res.script == 1
                       ? ddctl_timeline_summarize(&out, argv[res.script],
                                                  strcmp(o.format, "json") == 0, &err)
                       : dd_err_tip(&err,
                                    dd_err_set(&err, -EINVAL, "expected one FILE, got %d",
                                               argc - res.script),
                                    "pass the file that 'ddrun --timeline=FILE' has written");
    return rc < 0 ? cmd_fail(&ddctl_timeline_options, &err)
                  : cmd_write(&ddctl_timeline_options, &out);
}
