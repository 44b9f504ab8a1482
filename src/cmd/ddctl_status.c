/* ddctl status: show the nodes and the state of a running job. */
#include "base/sig.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "rdzv/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct status_options {
    const char *job, *format;
};

static const struct opt_row rows[] = {
    JOB_ROW(struct status_options),
    {JOB_FORMAT(struct status_options), .help = "text, or one JSON object",
     .more =
         "The object has 'job', 'state' (gathering, running, stopping, finished), 'round', "
         "'restarts', 'max_restarts', 'min_nodes', 'max_nodes', 'missing' (a host list), "
         "'nodes' and 'workers'; a node may have 'warnings' (of its health checks) and 'mark' (why "
         "the scheduler takes the node out of service); a worker has 'rank', 'local_rank', 'node' "
         "and 'state', and may have 'step' and 'step_seconds'. Later versions may add fields."},
};

const struct opt_table ddctl_status_options = {
    .program = "ddctl status",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Shows the state of a running job: the round, the nodes with their workers, "
             "failures, and missing nodes.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

/* Return the failure of this rank in the current round; NULL: none. */
static const json_t *ddctl_status_failure_of(const json_t *status, int rank)
{
    const json_t *list = json_object_get(status, "failed");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_number(json_array_get(list, i), "rank", -1) == rank)
            return json_array_get(list, i);
    return NULL;
}

/* Return the first rank of the node; -1: none, or out of range. *ret_n: number of workers of the
 * node; 0 if out of range. */
static int ddctl_status_ranks_of(const json_t *node, int *ret_n)
{
    const int first = json_number(node, "first_rank", -1);
    const int n = json_number(node, "workers", 0);
    *ret_n = n >= 0 && n <= PLAN_MAX_SLOTS ? n : 0;
    return first >= 0 && first <= PLAN_MAX_NODES * PLAN_MAX_SLOTS ? first : -1;
}

/* Return element i of entry k of the list, whose entries are [rank, step, us]; -1: none. */
static json_int_t ddctl_status_step_value(const json_t *list, size_t k, size_t i)
{
    const json_t *v = json_array_get(json_array_get(list, k), i);
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* Add the step of a rank, if it is known. The list is in the order of ranks. */
static int ddctl_status_add_step(json_t *worker, const json_t *list, int rank)
{
    size_t low = 0;
    size_t high = json_array_size(list);
    while (low < high) {
        const size_t at = low + (high - low) / 2;
        if (ddctl_status_step_value(list, at, 0) < rank)
            low = at + 1;
        else
            high = at;
    }
    const json_int_t step = ddctl_status_step_value(list, low, 1);
    const json_int_t us = ddctl_status_step_value(list, low, 2);
    if (ddctl_status_step_value(list, low, 0) != rank || step < 0 || us < 0)
        return 0;
    int rc = json_object_set_new(worker, "step", json_integer(step));
    return rc < 0 ? rc : json_object_set_new(worker, "step_seconds", json_real((double)us / 1e6));
}

static int ddctl_status_add_worker(json_t *workers, const json_t *status, const json_t *node,
                                   int first, int k)
{
    const json_t *steps = json_object_get(json_object_get(status, "steps"), "each");
    const bool failed = ddctl_status_failure_of(status, first + k) != NULL;
    json_t *o = json_pack("{s:i,s:i,s:s,s:s}", "rank", first + k, "local_rank", k, "node",
                          json_text(node, "name"), "state",
                          failed ? "failed" : json_text(node, "state"));
    const int rc = ddctl_status_add_step(o, steps, first + k);
    return json_array_append_new(workers, o) < 0 ? -1 : rc;
}

/* Add an array with one object per worker: a node of the status has only a range of ranks. */
static int ddctl_status_add_workers(json_t *status)
{
    json_t *workers = json_array();
    const json_t *nodes = json_object_get(status, "nodes");
    int rc = json_object_set_new(status, "workers", workers);
    for (size_t i = 0; i < json_array_size(nodes) && rc == 0; i++) {
        const json_t *node = json_array_get(nodes, i);
        int n;
        const int first = ddctl_status_ranks_of(node, &n);
        for (int k = 0; first >= 0 && k < n && rc == 0; k++)
            rc = ddctl_status_add_worker(workers, status, node, first, k);
    }
    (void)json_object_del(json_object_get(status, "steps"), "each"); /* moved to 'workers' */
    return rc < 0 ? -ENOMEM : 0;
}

static int ddctl_status_write_json(struct dd_buf *out, json_t *status)
{
    int rc = ddctl_status_add_workers(status);
    DD_AUTO(free) char *text = rc == 0
                                   ? json_dumps(status, JSON_INDENT(2) | JSON_REAL_PRECISION(15))
                                   : NULL;
    return text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
}

static long ddctl_status_count_workers(const json_t *nodes, int *ret_nodes)
{
    long n = 0;
    *ret_nodes = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        int some;
        if (ddctl_status_ranks_of(json_array_get(nodes, i), &some) < 0)
            continue;
        n += some;
        ++*ret_nodes;
    }
    return n;
}

static int ddctl_status_write_head(struct dd_buf *out, const json_t *status)
{
    const json_t *nodes = json_object_get(status, "nodes");
    int n;
    const long workers = ddctl_status_count_workers(nodes, &n);
    const char *state = json_text(status, "state");
    const int wanted = json_number(status, "wanted", 0);
    const int restarts = json_number(status, "max_restarts", 0);
    int rc = dd_buf_printf(out, "job %s is %s", json_text(status, "job"), state);
    if (rc == 0 && n == 0)
        rc = dd_buf_printf(out, ": %zu of %d node%s joined", json_array_size(nodes), wanted,
                           wanted == 1 ? "" : "s");
    else if (rc == 0)
        rc = dd_buf_printf(out, ": round %d, %ld worker%s on %d node%s",
                           json_number(status, "round", 0), workers, workers == 1 ? "" : "s", n,
                           n == 1 ? "" : "s");
    if (rc == 0 && restarts > 0)
        rc = dd_buf_printf(out, ", %d of %d restart%s used", json_number(status, "restarts", 0),
                           restarts, restarts == 1 ? "" : "s");
    else if (rc == 0)
        rc = dd_buf_puts(out, ", --max-restarts=0");
    const json_t *step = json_object_get(status, "step");
    if (rc == 0 && json_is_integer(step))
        rc = dd_buf_printf(out, ", step %lld", (long long)json_integer_value(step));
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

static int ddctl_status_widest_name(const json_t *nodes)
{
    size_t widest = 4;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const size_t n = strlen(json_text(json_array_get(nodes, i), "name"));
        widest = n > widest ? n : widest;
    }
    return (int)(widest < 64 ? widest : 64);
}

static int ddctl_status_write_node(struct dd_buf *out, const json_t *node, int width)
{
    char ranks[32] = "-";
    char place[16] = "-";
    int n;
    const int first = ddctl_status_ranks_of(node, &n);
    if (first >= 0) {
        (void)snprintf(place, sizeof(place), "%d", json_number(node, "node_rank", 0));
        (void)snprintf(ranks, sizeof(ranks), n == 1 ? "%d" : "%d-%d", first, first + n - 1);
    }
    const int charges = json_number(node, "charges", 0);
    int rc = dd_buf_printf(out, "%-*s  %4s  %7d  %-11s  %s", width, json_text(node, "name"), place,
                           n, ranks, json_text(node, "state"));
    if (rc == 0 && charges > 0)
        rc = dd_buf_printf(out, " (%d failure%s began here)", charges, charges == 1 ? "" : "s");
    const char *mark = json_text(node, "mark");
    if (rc == 0 && mark[0] != '\0')
        rc = dd_buf_printf(out, ", %s", mark);
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

static int ddctl_status_write_failure(struct dd_buf *out, const json_t *f)
{
    const int sig = json_number(f, "signal", 0);
    const char *why = json_text(f, "text");
    int rc = dd_buf_printf(out, "rank %d (%s) failed: ", json_number(f, "rank", 0),
                           json_text(f, "node"));
    if (rc == 0)
        rc = sig > 0 ? dd_buf_printf(out, "signal %d (SIG%s)", sig, dd_signal_name(sig))
                     : dd_buf_printf(out, "code %d", json_number(f, "code", 0));
    return rc < 0 ? rc : dd_buf_printf(out, "%s%s\n", why[0] != '\0' ? ", " : "", why);
}

static int ddctl_status_write_warnings(struct dd_buf *out, const json_t *node)
{
    const json_t *list = json_object_get(node, "warnings");
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        rc = dd_buf_printf(out, "%s: warning: %s\n", json_text(node, "name"),
                           text != NULL ? text : "");
    }
    return rc;
}

static int ddctl_status_write_stragglers(struct dd_buf *out, const json_t *list)
{
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = dd_buf_printf(out, "straggler: %s\n", json_text(json_array_get(list, i), "text"));
    return rc;
}

/* Append the median time of a step, and the stragglers. There is no median if the workers mark no
 * steps. */
static int ddctl_status_write_steps(struct dd_buf *out, const json_t *status)
{
    const json_t *steps = json_object_get(status, "steps");
    const json_t *list = json_object_get(steps, "stragglers");
    if (steps == NULL || json_number(steps, "ranks", 0) == 0)
        return ddctl_status_write_stragglers(out, json_object_get(status, "stragglers"));
    const int rc = dd_buf_printf(out, "median time of a step: %.3g s%s\n",
                                 json_number_value(json_object_get(steps, "seconds")),
                                 json_array_size(list) == 0 ? ", no straggler" : "");
    return rc < 0 ? rc : ddctl_status_write_stragglers(out, list);
}

static int ddctl_status_write_text(struct dd_buf *out, const json_t *status)
{
    const json_t *nodes = json_object_get(status, "nodes");
    const json_t *failed = json_object_get(status, "failed");
    const char *missing = json_text(status, "missing");
    const int width = ddctl_status_widest_name(nodes);
    int rc = ddctl_status_write_head(out, status);
    if (rc == 0)
        rc = dd_buf_printf(out, "%-*s  RANK  WORKERS  %-11s  STATE\n", width, "NODE", "RANKS");
    for (size_t i = 0; i < json_array_size(nodes) && rc == 0; i++)
        rc = ddctl_status_write_node(out, json_array_get(nodes, i), width);
    for (size_t i = 0; i < json_array_size(failed) && rc == 0; i++)
        rc = ddctl_status_write_failure(out, json_array_get(failed, i));
    for (size_t i = 0; i < json_array_size(nodes) && rc == 0; i++)
        rc = ddctl_status_write_warnings(out, json_array_get(nodes, i));
    if (rc == 0)
        rc = ddctl_status_write_steps(out, status);
    return rc < 0 || missing[0] == '\0' ? rc : dd_buf_printf(out, "missing: %s\n", missing);
}

int ddctl_status(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(64 << 20);
    struct status_options o = {0};
    struct dd_err err = {0};
    json_t *status = NULL;
    int code = cmd_options_alone(&ddctl_status_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    int rc = job_no_operands(&res, argc, argv, &err);
    if (rc == 0)
        rc = job_ask(&status, &(struct job_question){.job = o.job, .what = "status", .text = ""},
                     &err);
    if (rc == 0) {
        rc = strcmp(o.format, "json") == 0 ? ddctl_status_write_json(&out, status)
                                           : ddctl_status_write_text(&out, status);
        if (rc < 0)
            (void)dd_err_set(&err, rc, "out of memory");
    }
    json_decref(status);
    return rc < 0 ? job_fail(&ddctl_status_options, rc, &err)
                  : cmd_write(&ddctl_status_options, &out);
}
