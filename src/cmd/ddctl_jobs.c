/* ddctl jobs: list the jobs of this user that run on this node. */
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_MAX = 16 << 20 };

struct jobs_options {
    const char *format;
};

static const struct opt_row rows[] = {
    {JOB_FORMAT(struct jobs_options), .help = "text, or one JSON object",
     .more = "The object has 'version' (1), 'node', 'unanswered' (the number of sockets like "
             "ddrun's that did not answer) and 'jobs'. A job has 'job', 'state' (as in 'ddctl "
             "status', or 'unknown'), and unless the state is unknown 'nodes', 'wanted', "
             "'workers', 'round', 'restarts', 'max_restarts', 'missing' (a host list) and "
             "'seconds' since the start of its daemon. Later versions may add fields."},
};

const struct opt_table ddctl_jobs_options = {
    .program = "ddctl jobs",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Lists your jobs that run on this node, with their states.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

/* Return the entry of a job, made of the answer to a status request; NULL: out of memory. A job
 * that is starting or ending has no daemon that could answer. */
static json_t *ddctl_jobs_entry(const char *job, const json_t *status)
{
    static const char *const numbers[] = {"wanted", "round", "restarts", "max_restarts", "seconds"};
    const json_t *nodes = json_object_get(status, "nodes");
    if (status == NULL)
        return json_pack("{s:s,s:s}", "job", job, "state", "unknown");
    int workers = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++)
        workers += json_number(json_array_get(nodes, i), "workers", 0);
    json_t *entry = json_pack("{s:s,s:s,s:i,s:i,s:s}", "job", job, "state",
                              json_text(status, "state"), "nodes", (int)json_array_size(nodes),
                              "workers", workers, "missing", json_text(status, "missing"));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        (void)json_object_set_new(entry, numbers[i],
                                  json_integer(json_number(status, numbers[i], 0)));
    return entry;
}

static int ddctl_jobs_collect(json_t *list, const struct dd_strv *jobs, struct dd_err *err)
{
    for (size_t i = 0; i < jobs->n; i++) {
        json_t *status = NULL;
        struct dd_err why = {0};
        const int rc = job_ask(
            &status, &(struct job_question){.job = jobs->v[i], .what = "status", .text = ""}, &why);
        if (rc == -ENOENT) /* the job has ended meanwhile, and no other one runs */
            continue;
        const int added = json_array_append_new(list, ddctl_jobs_entry(jobs->v[i], status));
        json_decref(status);
        if (added < 0)
            return dd_err_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int ddctl_jobs_write_row(struct dd_buf *out, const json_t *job, int width)
{
    const int s = json_number(job, "seconds", 0);
    char nodes[32] = "-";
    char elapsed[32] = "-";
    if (json_object_get(job, "nodes") == NULL)
        return dd_buf_printf(out, "%-*s  %-9s  %5s  %7s  %8s  %s\n", width, json_text(job, "job"),
                             json_text(job, "state"), nodes, "-", "-", elapsed);
    const int joined = json_number(job, "nodes", 0);
    const int wanted = json_number(job, "wanted", 0);
    (void)snprintf(nodes, sizeof(nodes), joined < wanted ? "%d/%d" : "%d", joined, wanted);
    (void)snprintf(elapsed, sizeof(elapsed), "%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
    return dd_buf_printf(out, "%-*s  %-9s  %5s  %7d  %5d/%-2d  %s\n", width, json_text(job, "job"),
                         json_text(job, "state"), nodes, json_number(job, "workers", 0),
                         json_number(job, "restarts", 0), json_number(job, "max_restarts", 0),
                         elapsed);
}

/* Append how many sockets did not answer: their owners and jobs are unknown. */
static int ddctl_jobs_write_unanswered(struct dd_buf *out, size_t n)
{
    return n == 0 ? 0
                  : dd_buf_printf(out,
                                  "%zu socket%s like ddrun's did not answer; further jobs of yours "
                                  "may be running\n",
                                  n, n == 1 ? "" : "s");
}

static int ddctl_jobs_write_text(struct dd_buf *out, const json_t *list, const char *node,
                                 size_t unanswered)
{
    size_t width = 3;
    if (json_array_size(list) == 0 && unanswered == 0)
        return dd_buf_printf(out, "you have no running ddrun job on %s\n", node);
    if (json_array_size(list) == 0)
        return dd_buf_printf(out,
                             "no ddrun job of yours answered on %s; %zu socket%s like ddrun's did "
                             "not answer\n",
                             node, unanswered, unanswered == 1 ? "" : "s");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t n = strlen(json_text(json_array_get(list, i), "job"));
        width = n > width ? n : width;
    }
    int rc = dd_buf_printf(out, "%-*s  STATE      NODES  WORKERS  RESTARTS  ELAPSED\n", (int)width,
                           "JOB");
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = ddctl_jobs_write_row(out, json_array_get(list, i), (int)width);
    return rc < 0 ? rc : ddctl_jobs_write_unanswered(out, unanswered);
}

static int ddctl_jobs_write_json(struct dd_buf *out, json_t *list, const char *node,
                                 size_t unanswered)
{
    json_t *o = json_pack("{s:i,s:s,s:I,s:O}", "version", 1, "node", node, "unanswered",
                          (json_int_t)unanswered, "jobs", list);
    DD_AUTO(free) char *text = o != NULL ? json_dumps(o, JSON_INDENT(2)) : NULL;
    json_decref(o);
    return text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
}

static int ddctl_jobs_run(const struct jobs_options *o, struct dd_buf *out, struct dd_err *err)
{
    char node[256] = "this node";
    size_t unanswered = 0;
    DD_AUTO(strv) struct dd_strv jobs = {0};
    json_t *list = json_array();
    (void)gethostname(node, sizeof(node) - 1);
    int rc = job_list(&jobs, &unanswered, err);
    if (rc == 0)
        rc = ddctl_jobs_collect(list, &jobs, err);
    if (rc == 0) {
        rc = strcmp(o->format, "json") == 0 ? ddctl_jobs_write_json(out, list, node, unanswered)
                                            : ddctl_jobs_write_text(out, list, node, unanswered);
        if (rc < 0)
            (void)dd_err_set(err, rc, "out of memory");
    }
    json_decref(list);
    return rc;
}

int ddctl_jobs(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(OUT_MAX);
    struct jobs_options o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_jobs_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = res.script < argc
                 ? dd_err_set(&err, -EINVAL, "unexpected argument '%.60s'", argv[res.script])
                 : 0;
    if (rc == 0)
        rc = ddctl_jobs_run(&o, &out, &err);
    return rc < 0 ? job_fail(&ddctl_jobs_options, rc, &err) : cmd_write(&ddctl_jobs_options, &out);
}
