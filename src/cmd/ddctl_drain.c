/* ddctl drain: exclude a node from all further rounds. */
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include <errno.h>

struct drain_options {
    const char *job;
};

static const struct opt_row rows[] = {JOB_ROW(struct drain_options)};

const struct opt_table ddctl_drain_options = {
    .program = "ddctl drain",
    .version = PACKAGE_VERSION,
    .usage = "[options] NODE",
    .about = "Removes a node from a running job. All workers are stopped and restarted at once "
             "without this node; this does not count as a restart. If there is a spare node, it "
             "replaces the drained one.",
    .mixed = true,
    OPT_ROWS(rows),
};

static int ddctl_drain_tell(struct dd_buf *out, const json_t *answer, const char *node)
{
    if (json_is_true(json_object_get(answer, "known")))
        return dd_buf_printf(out, "%s is already excluded from all further rounds\n", node);
    return dd_buf_printf(
        out, "%s is excluded from all further rounds%s\n", node,
        json_is_true(json_object_get(answer, "restarts")) ? "; restarting without it" : "");
}

int ddctl_drain(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 16);
    struct drain_options o = {0};
    struct dd_err err = {0};
    json_t *answer = NULL;
    int code = cmd_options_alone(&ddctl_drain_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = argc - res.script == 1 ? 0
                                    : dd_err_set(&err, -EINVAL,
                                                 "expected one node, got %d"
                                                 "\n  tip: 'ddctl status' lists the nodes",
                                                 argc - res.script);
    if (rc == 0)
        rc = job_ask(
            &answer,
            &(struct job_question){.job = o.job, .what = "drain", .text = argv[res.script]}, &err);
    if (rc == 0 && ddctl_drain_tell(&out, answer, argv[res.script]) < 0)
        rc = dd_err_set(&err, -ENOMEM, "out of memory");
    json_decref(answer);
    return rc < 0 ? job_fail(&ddctl_drain_options, rc, &err)
                  : cmd_write(&ddctl_drain_options, &out);
}
