/* ddctl blame: show the nodes on which the failures of a running job began. */
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct blame_options {
    const char *job, *format;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct blame_options),
    {JOB_FORMAT(struct blame_options), .help = "text, or one JSON object",
     .more = "The object has 'round', 'window_s' (--blame-window; 0: not set) and 'nodes'; a "
             "node has 'name', 'charges', 'age_s' (seconds since the last charge; null: none), "
             "'left_out' (why rounds leave it out; null: they do not) and 'text'. Later versions "
             "may add fields."},
};

const struct opt_table ddctl_blame_options = {
    .program = "ddctl blame",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Shows on which nodes of a running job failures began, and which nodes are excluded, "
             "with the reason. The first failure of each round is charged to its node, unless it "
             "only reports the failure of another node.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

static int ddctl_blame_widest(const json_t *nodes)
{
    size_t widest = 4;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const size_t n = strlen(json_text(json_array_get(nodes, i), "name"));
        widest = n > widest ? n : widest;
    }
    return (int)(widest < 64 ? widest : 64);
}

static int ddctl_blame_write_node(struct dd_buf *out, const json_t *node, int width)
{
    char age[DD_DURATION_TEXT] = "-";
    const int charges = json_number(node, "charges", 0);
    const int s = json_number(node, "age_s", 0);
    const char *left_out = json_text(node, "left_out");
    const char *why = json_text(node, "text");
    if (charges > 0)
        dd_num_duration_text(age, s > 0 ? (uint64_t)s : 0);
    int rc = dd_buf_printf(out, "%-*s  %7d  %-14s  ", width, json_text(node, "name"), charges, age);
    if (rc == 0 && json_is_string(json_object_get(node, "left_out")))
        rc = dd_buf_printf(out, "[left out%s%s]%s", left_out[0] != '\0' ? ": " : "", left_out,
                           why[0] != '\0' ? " " : "");
    return rc < 0 ? rc : dd_buf_printf(out, "%s\n", why);
}

static int ddctl_blame_write_text(struct dd_buf *out, const json_t *answer)
{
    const json_t *nodes = json_object_get(answer, "nodes");
    const int width = ddctl_blame_widest(nodes);
    if (json_array_size(nodes) == 0)
        return dd_buf_puts(out, "no failure is charged to a node, and no node is left out\n");
    int rc = dd_buf_printf(out, "%-*s  CHARGES  %-14s  LAST FAILURE\n", width, "NODE", "AGE");
    for (size_t i = 0; i < json_array_size(nodes) && rc == 0; i++)
        rc = ddctl_blame_write_node(out, json_array_get(nodes, i), width);
    return rc;
}

static int ddctl_blame_write_json(struct dd_buf *out, const json_t *answer)
{
    DD_AUTO(free) char *text = json_dumps(answer, JSON_INDENT(2));
    return text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
}

int ddctl_blame(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    struct blame_options o = {0};
    struct dd_err err = {0};
    json_t *answer = NULL;
    int code = cmd_options_alone(&ddctl_blame_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = job_ask(&answer, &(struct job_question){.job = o.job, .what = "blame", .text = ""},
                     &err);
    if (rc == 0 && (strcmp(o.format, "json") == 0 ? ddctl_blame_write_json(&out, answer)
                                                  : ddctl_blame_write_text(&out, answer)) < 0)
        rc = dd_err_set(&err, -ENOMEM, "out of memory");
    json_decref(answer);
    return rc < 0 ? job_fail(&ddctl_blame_options, rc, &err)
                  : cmd_write(&ddctl_blame_options, &out);
}
