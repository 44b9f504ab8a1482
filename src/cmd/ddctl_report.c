/* ddctl report: print the file of ddrun --report as the terminal has shown it. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "config.h"
#include "report/report_read.h"
#include "report/timeline_summary.h"

#include <errno.h>

enum { PRINTED_MAX = 1 << 20 };

const struct opt_table ddctl_report_options = {
    .program = "ddctl report",
    .version = PACKAGE_VERSION,
    .usage = "FILE",
    .about = "Prints the report of a job from the FILE that 'ddrun --report=FILE' has written: the "
             "job, the cause of each restart, and what ddrun printed at the end.",
    .mixed = true,
};

static bool ddctl_report_is_timeline(const char *text, size_t n)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(PRINTED_MAX);
    struct dd_err err = {0};
    return timeline_summary(&out, text, n, &err) == 0;
}

static int ddctl_report_print(struct dd_buf *out, const char *path, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_FILE_MAX);
    int rc = dd_read_file(path, &text, err);
    if (rc == -ENOENT)
        return dd_err_tip(err, rc, "'ddrun --report=FILE' writes the file when the job ends");
    if (rc < 0)
        return rc;
    const char *data = text.len > 0 ? (const char *)text.data : "";
    rc = report_read(data, text.len, out, err);
    if (rc == -EINVAL && ddctl_report_is_timeline(data, text.len))
        return dd_err_tip(err, dd_err_set(err, rc, "'%s' is a timeline, not a report", path),
                          "'ddctl timeline %s' summarizes it", path);
    return rc < 0 ? dd_err_where(err, rc, "'%s'", path) : 0;
}

int ddctl_report(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(PRINTED_MAX);
    struct dd_err err = {0};
    char none; /* the table has no option with a value */
    const int code = cmd_options_alone(&ddctl_report_options, &none, argc, argv, &res);
    if (code >= 0)
        return code;
    const int rc = argc - res.script == 1
                       ? ddctl_report_print(&out, argv[res.script], &err)
                       : dd_err_tip(&err,
                                    dd_err_set(&err, -EINVAL, "expected one FILE, got %d",
                                               argc - res.script),
                                    "pass the file that 'ddrun --report=FILE' has written");
    return rc < 0 ? cmd_fail(&ddctl_report_options, &err) : cmd_write(&ddctl_report_options, &out);
}
