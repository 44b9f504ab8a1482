/* ddctl report: print the file of ddrun --report as the terminal has shown it. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "config.h"
#include "report/report_read.h"

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

static int ddctl_report_print(struct dd_buf *out, const char *path, struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(REPORT_FILE_MAX);
    int rc = dd_read_file(path, &text, err);
    if (rc < 0)
        return rc;
    rc = report_read(text.len > 0 ? (const char *)text.data : "", text.len, out, err);
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
                                    "'ddrun --report=FILE' writes it");
    return rc < 0 ? cmd_fail(&ddctl_report_options, &err) : cmd_write(&ddctl_report_options, &out);
}
