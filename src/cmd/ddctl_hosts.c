/* ddctl hosts: print the nodes of this job, or expand and combine host lists. */
#include "alloc/alloc.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "hostlist/hostlist.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct hosts_options {
    bool expand, fold, count;
    int nth;
    bool each_once, common;
    struct dd_strv without;
    const char *format;
};

#define FIELD(name) OPT_FIELD(struct hosts_options, name)

static const struct opt_row rows[] = {
    {.name = "union",
     .kind = OPT_FLAG,
     .group = "Names",
     .help = "names of all expressions, each once, by first appearance",
     .more = "Without this option, the expressions are concatenated and duplicates are kept.",
     FIELD(each_once)},
    {.name = "common",
     .kind = OPT_FLAG,
     .group = "Names",
     .help = "names common to all expressions, in the order of the first",
     FIELD(common)},
    {.name = "without",
     .kind = OPT_REPEATED,
     .metavar = "EXPRESSION",
     .example = "node3",
     .group = "Names",
     .help = "exclude these names; may be repeated, may be empty",
     FIELD(without)},
    {.name = "expand",
     .kind = OPT_FLAG,
     .group = "Output",
     .help = "print one name per line (default)",
     FIELD(expand)},
    {.name = "fold",
     .kind = OPT_FLAG,
     .group = "Output",
     .help = "print all names as one host list, in order",
     FIELD(fold)},
    {.name = "count",
     .kind = OPT_FLAG,
     .group = "Output",
     .help = "print the number of names",
     FIELD(count)},
    {JOB_FORMAT(struct hosts_options), .help = "text, or a JSON array of all names"},
    {.name = "nth",
     .kind = OPT_INT,
     .metavar = "N",
     .min = -HOSTLIST_MAX,
     .max = HOSTLIST_MAX,
     .example = "-1",
     .group = "Output",
     .help = "print name N only; 0 is the first, -1 the last",
     FIELD(nth)},
};

const struct opt_table ddctl_hosts_options = {
    .program = "ddctl hosts",
    .version = PACKAGE_VERSION,
    .usage = "[options] [EXPRESSION...]",
    .about = "Prints the names of this job's nodes in rank order, each once. These are the "
             "nodes of the allocation. Outside of an allocation, they are those of the round if "
             "a worker calls ddctl, otherwise this machine alone. It does not ask a running job, "
             "as 'ddctl status' does. With EXPRESSIONs such as 'node[1-4,7]', prints their names "
             "instead.",
    .mixed = true,
    OPT_ROWS(rows),
    .foreign = job_json,
};

static int ddctl_hosts_no_room(int rc, struct dd_err *err)
{
    if (rc == -E2BIG)
        return dd_err_set(err, rc, "too many host names (limit %d)", HOSTLIST_MAX);
    return rc < 0 ? dd_err_set(err, rc, "out of memory") : 0;
}

/* ---- where the names come from ---- */

/* Outside of allocations, a worker of ddrun finds the nodes of its round in DDRUN_NODES. */
static int ddctl_hosts_read_nodes(struct hostlist **ret, const struct alloc *a, struct dd_err *err)
{
    const char *round = dd_env_get_nonempty(environ, "DDRUN_NODES");
    if (strcmp(a->source, "local") != 0 || round == NULL)
        return ddctl_hosts_no_room(hostlist_uniq(ret, a->nodes), err);
    int rc = hostlist_parse(ret, round, err);
    return rc < 0 ? dd_err_where(err, rc, "DDRUN_NODES") : 0;
}

static int ddctl_hosts_nodes_of_job(struct hostlist **ret, struct dd_err *err)
{
    DD_AUTO(alloc) struct alloc *a = NULL;
    DD_AUTO(local_machine) struct local_machine m = {0};
    const struct dd_log log = {.fd = STDERR_FILENO,
                               .colours = dd_log_has_colours(STDERR_FILENO),
                               .who = "ddctl hosts",
                               .level = DD_LOG_WARN};
    int rc = local_machine_discover(&m, err);
    if (rc == 0)
        rc = cmd_find_alloc(&a, &m, &(struct alloc_input){.node_rank = -1}, &log, err);
    return rc == 0 ? ddctl_hosts_read_nodes(ret, a, err) : rc;
}

/* Add the names of one expression to *all. */
static int ddctl_hosts_add_names(struct hostlist **all, const struct hostlist *more,
                                 const struct hosts_options *o)
{
    DD_AUTO(hostlist) struct hostlist *both = NULL;
    int rc = 0;
    if (o->common)
        rc = hostlist_intersection(&both, *all, more);
    else if (o->each_once)
        rc = hostlist_union(&both, *all, more);
    else
        for (size_t i = 0; rc == 0 && i < hostlist_count(more); i++)
            rc = hostlist_push(*all, hostlist_nth(more, i));
    if (rc < 0 || both == NULL)
        return rc;
    hostlist_free(*all);
    *all = DD_TAKE(both);
    return 0;
}

/* alone: no other expression is given. */
static int ddctl_hosts_read_expression(struct hostlist **ret, const char *text, bool alone,
                                       struct dd_err *err)
{
    if (text[0] == '-')
        return dd_err_set(err, -EINVAL, "'%.60s' is not a list of nodes: it begins with a dash",
                          text);
    int rc = hostlist_parse(ret, text, err);
    if (rc == 0 && hostlist_count(*ret) == 0)
        return dd_err_set(err, -EINVAL, "empty expression (an unset variable?)%s",
                          alone ? "\n  tip: omit it to print the nodes of this job" : "");
    return rc;
}

static int ddctl_hosts_read_expressions(struct hostlist **ret, char *const *first,
                                        char *const *rest, const struct hosts_options *o,
                                        struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *all = NULL;
    int rc = ddctl_hosts_read_expression(&all, *first, *rest == NULL, err);
    for (; rc == 0 && *rest != NULL; rest++) {
        DD_AUTO(hostlist) struct hostlist *more = NULL;
        rc = ddctl_hosts_read_expression(&more, *rest, false, err);
        if (rc == 0)
            rc = ddctl_hosts_no_room(ddctl_hosts_add_names(&all, more, o), err);
    }
    if (rc < 0)
        return rc;
    if (o->common || o->each_once)
        return ddctl_hosts_no_room(hostlist_uniq(ret, all), err);
    *ret = DD_TAKE(all);
    return 0;
}

static int ddctl_hosts_leave_out(struct hostlist **names, const struct dd_strv *without,
                                 struct dd_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < without->n; i++) {
        DD_AUTO(hostlist) struct hostlist *out = NULL;
        DD_AUTO(hostlist) struct hostlist *left = NULL;
        rc = hostlist_parse(&out, without->v[i], err);
        if (rc < 0)
            return dd_err_where(err, rc, "--without");
        rc = ddctl_hosts_no_room(hostlist_difference(&left, *names, out), err);
        if (rc < 0)
            return rc;
        hostlist_free(*names);
        *names = DD_TAKE(left);
    }
    return rc;
}

/* ---- what is written ---- */

static int ddctl_hosts_write_nth(struct dd_buf *out, const struct hostlist *names, int nth,
                                 struct dd_err *err)
{
    const int n = (int)hostlist_count(names);
    const int at = nth < 0 ? n + nth : nth;
    if (at < 0 || at >= n)
        return dd_err_set(
            err, -EINVAL,
            "--nth=%d is out of range: there %s %d name%s (the first is 0, the last -1)", nth,
            n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    return ddctl_hosts_no_room(dd_buf_printf(out, "%s\n", hostlist_nth(names, (size_t)at)), err);
}

static bool ddctl_hosts_is_json(const struct hosts_options *o)
{
    return strcmp(o->format, "json") == 0;
}

static int ddctl_hosts_write_json(struct dd_buf *out, const struct hostlist *names)
{
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < hostlist_count(names); i++)
        rc = json_array_append_new(list, json_string(hostlist_nth(names, i)));
    DD_AUTO(free) char *text = rc == 0 ? json_dumps(list, 0) : NULL;
    json_decref(list);
    return text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
}

static int ddctl_hosts_write_names(struct dd_buf *out, const struct hostlist *names,
                                   const struct hosts_options *o)
{
    const size_t n = hostlist_count(names);
    int rc = 0;
    if (ddctl_hosts_is_json(o))
        return ddctl_hosts_write_json(out, names);
    if (o->count)
        return dd_buf_printf(out, "%zu\n", n);
    if (o->fold && n > 0) {
        rc = hostlist_fold(names, out);
        return rc == 0 ? dd_buf_puts(out, "\n") : rc;
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = dd_buf_printf(out, "%s\n", hostlist_nth(names, i));
    return rc;
}

static int ddctl_hosts_check(const struct hosts_options *o, bool nth, int operands,
                             struct dd_err *err)
{
    if (o->expand + o->fold + o->count + nth > 1)
        return dd_err_set(err, -EINVAL,
                          "--expand, --fold, --count and --nth are mutually exclusive");
    if (ddctl_hosts_is_json(o) && (o->expand || o->fold || o->count || nth))
        return dd_err_set(
            err, -EINVAL,
            "--format=json cannot be combined with --expand, --fold, --count or --nth");
    if (o->each_once && o->common)
        return dd_err_set(err, -EINVAL, "--union and --common are mutually exclusive");
    if (o->common && operands < 2)
        return dd_err_set(err, -EINVAL, "--common needs at least two expressions");
    return 0;
}

static int ddctl_hosts_answer(struct dd_buf *out, const struct hosts_options *o,
                              const struct opt_result *res, int argc, char **argv,
                              struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *names = NULL;
    const bool nth = opt_is_given(res, &ddctl_hosts_options, "nth");
    int rc = ddctl_hosts_check(o, nth, argc - res->script, err);
    if (rc == 0)
        rc = res->script < argc ? ddctl_hosts_read_expressions(&names, argv + res->script,
                                                               argv + res->args, o, err)
                                : ddctl_hosts_nodes_of_job(&names, err);
    if (rc == 0)
        rc = ddctl_hosts_leave_out(&names, &o->without, err);
    if (rc == 0)
        rc = nth ? ddctl_hosts_write_nth(out, names, o->nth, err)
                 : ddctl_hosts_no_room(ddctl_hosts_write_names(out, names, o), err);
    return rc;
}

int ddctl_hosts(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(32 << 20);
    struct hosts_options o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_hosts_options, &o, argc, argv, &res);
    if (code < 0)
        code = ddctl_hosts_answer(&out, &o, &res, argc, argv, &err) < 0
                   ? cmd_fail(&ddctl_hosts_options, &err)
                   : cmd_write(&ddctl_hosts_options, &out);
    opt_values_done(&ddctl_hosts_options, &o);
    return code;
}
