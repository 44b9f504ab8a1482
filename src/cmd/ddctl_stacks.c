/* ddctl stacks: show what the workers of a running job are executing. */
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "report/stacks.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 64 << 20 };

struct stacks_command {
    const char *job, *format, *node, *ranks;
    uint64_t timeout;
    bool native;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct stacks_command),
    {.name = "node",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .no_env = true,
     .example = "node3",
     .group = "Workers",
     .help = "show only the workers of this node",
     OPT_FIELD(struct stacks_command, node)},
    {.name = "rank",
     .kind = OPT_STRING,
     .metavar = "RANKS",
     .no_env = true,
     .example = "0-3,8",
     .group = "Workers",
     .help = "show only these ranks",
     OPT_FIELD(struct stacks_command, ranks)},
    {.name = "native",
     .kind = OPT_FLAG,
     .no_env = true,
     .group = "Workers",
     .help = "read native frames, too, with eu-stack or gdb",
     .more = "Each worker is stopped while its native frames are read, for some milliseconds with "
             "eu-stack (elfutils), for up to seconds with gdb, and for at most half of --timeout.",
     OPT_FIELD(struct stacks_command, native)},
    {.name = "timeout",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "5s",
     .no_env = true,
     .min = INT64_C(100000000),
     .max = INT64_C(25000000000),
     .group = "Workers",
     .help = "time limit for all nodes together",
     OPT_FIELD(struct stacks_command, timeout)},
    {JOB_FORMAT(struct stacks_command), .help = "text, or one JSON object",
     .more = "The object has 'groups', one for each different stack, with 'ranks', 'kind' "
             "(python, kernel, ended, unread), 'headline', 'state', 'note' and 'frames', the "
             "innermost first; 'children', the groups of processes for which ranks wait, such as "
             "those of a DataLoader; 'collectives' and 'nccl_ras', what PyTorch and NCCL report; "
             "'nodes', and 'seconds', the time that the collection took. Later versions may add "
             "fields."},
};

const struct opt_table ddctl_stacks_options = {
    .program = "ddctl stacks",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Shows what the workers of a running job are executing, without stopping them (except "
             "with --native). Equal stacks are folded, and those of the fewest ranks come first. "
             "Of workers that do not run Python, it shows the state in the kernel.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

static int ddctl_stacks_question(const struct stacks_command *o, struct dd_buf *out,
                                 struct dd_err *err)
{
    DD_AUTO(rank_set) struct rank_set ranks = {0};
    if (o->ranks != NULL && rank_set_parse(&ranks, o->ranks) < 0)
        return dd_err_set(err, -EINVAL,
                          "invalid value '%.100s' for --rank: expected ranks as in 0-3,8",
                          o->ranks);
    json_t *q = json_pack("{s:s,s:s,s:b,s:I}", "node", o->node != NULL ? o->node : "", "ranks",
                          o->ranks != NULL ? o->ranks : "", "native", o->native, "limit_ms",
                          (json_int_t)(o->timeout / DD_NS_PER_MS));
    DD_AUTO(free) char *text = q != NULL ? json_dumps(q, JSON_COMPACT) : NULL;
    json_decref(q);
    if (q == NULL)
        return dd_err_set(err, -EINVAL, "invalid value for --node: not UTF-8");
    return text == NULL || dd_buf_puts(out, text) < 0 ? dd_err_set(err, -ENOMEM, "out of memory")
                                                      : 0;
}

/* Append the answer: as JSON, or as text with every group and its frames. */
static int ddctl_stacks_write(json_t *o, bool as_json, struct dd_buf *out, struct dd_err *err)
{
    DD_AUTO(stacks) struct stacks s = {0};
    json_t *versioned = as_json ? json_pack("{s:i}", "version", 1) : NULL;
    if (versioned != NULL && json_object_update_missing(versioned, o) < 0)
        json_decref(DD_TAKE(versioned));
    DD_AUTO(free) char *text = json_dumps(
        as_json ? versioned : o, as_json ? JSON_INDENT(2) | JSON_REAL_PRECISION(15) : JSON_COMPACT);
    json_decref(versioned);
    if (text == NULL)
        return dd_err_set(err, -ENOMEM, "out of memory");
    if (as_json)
        return dd_buf_printf(out, "%s\n", text) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
    int rc = stacks_parse(&s, text, 0, -1, err);
    if (rc < 0)
        return rc;
    stacks_sort(&s);
    if (stacks_tip(&s) != NULL)
        (void)fprintf(stderr, "tip: %s\n", stacks_tip(&s));
    return stacks_text_long(&s, out) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

int ddctl_stacks(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(TEXT_MAX);
    DD_AUTO(buf) struct dd_buf question = DD_BUF_INIT(STACKS_TEXT);
    struct stacks_command o = {0};
    struct dd_err err = {0};
    json_t *answer = NULL;
    int code = cmd_options_alone(&ddctl_stacks_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = ddctl_stacks_question(&o, &question, &err);
    if (rc == 0)
        rc = job_ask(
            &answer,
            &(struct job_question){.job = o.job, .what = "stacks", .text = dd_buf_str(&question)},
            &err);
    if (rc == 0)
        rc = ddctl_stacks_write(answer, strcmp(o.format, "json") == 0, &out, &err);
    json_decref(answer);
    return rc < 0 ? job_fail(&ddctl_stacks_options, rc, &err)
                  : cmd_write(&ddctl_stacks_options, &out);
}
