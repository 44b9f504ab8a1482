/* ddctl profile: show the operations of a running job's store. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "report/profile_text.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct profile_options {
    const char *job, *format;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct profile_options),
    {JOB_FORMAT(struct profile_options), .help = "text, or one JSON object"},
};

const struct opt_table ddctl_profile_options = {
    .program = "ddctl profile",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Shows the operations that the store of a running job has executed: their number and "
             "bytes, and the sizes of the messages. With 'ddrun --profile', it also shows their "
             "times and the keys that were named most often.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

static int ddctl_profile_write(const json_t *o, bool as_json, struct dd_buf *out)
{
    if (!as_json)
        return profile_text(o, out);
    DD_AUTO(free) char *text = json_dumps(o, JSON_INDENT(2));
    return text != NULL ? dd_buf_printf(out, "%s\n", text) : -ENOMEM;
}

int ddctl_profile(int argc, char **argv)
{
    static const char tip[] =
        "tip: a job that is started with 'ddrun --profile' also measures times and counts keys\n";
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    struct profile_options o = {0};
    struct dd_err err = {0};
    json_t *profile = NULL;
    int code = cmd_options_alone(&ddctl_profile_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    const bool as_json = strcmp(o.format, "json") == 0;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = job_ask(&profile, &(struct job_question){.job = o.job, .what = "profile", .text = ""},
                     &err);
    if (rc == 0 && (rc = ddctl_profile_write(profile, as_json, &out)) < 0)
        (void)dd_err_set(&err, rc, "out of memory");
    const bool measured = json_is_true(json_object_get(profile, "measured"));
    json_decref(profile);
    if (rc < 0)
        return job_fail(&ddctl_profile_options, rc, &err);
    code = cmd_write(&ddctl_profile_options, &out);
    if (code == 0 && !measured && !as_json)
        (void)dd_write_full(STDERR_FILENO, tip, sizeof(tip) - 1);
    return code;
}
