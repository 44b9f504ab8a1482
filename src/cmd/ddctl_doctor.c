/* ddctl doctor: start this program on all nodes of the job, collect what each node finds about
 * itself and its connections, and print problems with remedies. */
#include "base/columns.h"
#include "base/io.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_doctor_fabric.h"
#include "cmd/ddctl_job.h"
#include "config.h"
#include "doctor/answers.h"
#include "doctor/judge.h"
#include "doctor/look.h"
#include "doctor/look_lines.h"
#include "doctor/pair.h"
#include "doctor/pair_figures.h"
#include "launch/find.h"
#include "launch/node_commands.h"
#include "net/loop.h"
#include "web/etcd_url.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { MOST_OUT = 64 << 20, GIVE_MS = 10000, NOT_GIVEN = 3, NET_MS = 2 * PAIR_MS_MAX };

struct doctor_options {
    const char *hosts, *hostfile, *launcher, *launch_command, *key_file, *key_source, *munge_socket,
        *format, *id, *answer_to, *profiles;
    const char *master_addr, *rdzv_endpoint, *iface;
    int node_rank, master_port;
    uint64_t limit;
    bool insecure, local, net;
};

#define FIELD(name) OPT_FIELD(struct doctor_options, name)

static const struct opt_row rows[] = {
    {.name = "hosts",
     .kind = OPT_STRING,
     .metavar = "LIST",
     .example = "node[1-4]",
     .group = "Nodes",
     .help = "nodes to examine, as a host list (instead of the job's)",
     FIELD(hosts)},
    {.name = "hostfile",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .example = "nodes.txt",
     .group = "Nodes",
     .help = "file with one node per line",
     FIELD(hostfile)},
    {.name = "launcher",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "auto",
     .choices = STARTER_NAMES,
     .group = "Nodes",
     .help = "launcher for the other nodes (see ddrun --launcher)",
     FIELD(launcher)},
    {.name = "launch-command",
     .kind = OPT_STRING,
     .metavar = "COMMAND",
     .example = "ssh -p 2222",
     .group = "Nodes",
     .help = "command to run instead of the launcher's program",
     FIELD(launch_command)},
    {.name = "key-file",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .group = "Connections",
     .help = "file with the job's key (see ddrun --key-file)",
     FIELD(key_file)},
    {.name = "key-source",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .def = "auto",
     .choices = "auto,pbs-cookie",
     .group = "Connections",
     .help = "source of the job's key (see ddrun --key-source)",
     FIELD(key_source)},
    {.name = "munge-socket",
     .kind = OPT_STRING,
     .metavar = "PATH",
     .group = "Connections",
     .help = "socket of munged (see ddrun --munge-socket)",
     FIELD(munge_socket)},
    {.name = "insecure",
     .kind = OPT_FLAG,
     .group = "Connections",
     .help = "connect without a key",
     FIELD(insecure)},
    {.name = "rdzv-endpoint",
     .kind = OPT_STRING,
     .hide = OPT_HIDE_USER,
     .metavar = "HOST[:PORT]",
     .example = "node1:29400",
     .group = "Connections",
     .help = "address of the first node, as for ddrun; not an etcd URL",
     FIELD(rdzv_endpoint)},
    {.name = "master-addr",
     .kind = OPT_STRING,
     .metavar = "ADDR",
     .example = "10.0.0.1",
     .group = "Connections",
     .help = "name or address of the first node (see ddrun)",
     FIELD(master_addr)},
    {.name = "master-port",
     .kind = OPT_INT,
     .metavar = "PORT",
     .min = 0,
     .max = 65535,
     .def_doc = "a sample of the ports that jobs use",
     .example = "29500",
     .group = "Connections",
     .help = "port for the job (see ddrun --master-port)",
     FIELD(master_port)},
    {.name = "iface",
     .kind = OPT_STRING,
     .metavar = "NAME",
     .example = "ib0",
     .group = "Connections",
     .help = "network interface of the workers (see ddrun --iface)",
     FIELD(iface)},
    {.name = "limit",
     .kind = OPT_DURATION,
     .metavar = "TIME",
     .def = "10s",
     .min = (int64_t)DD_NS_PER_MS,
     .max = (int64_t)(3600 * DD_NS_PER_S),
     .group = "Connections",
     .help = "time limit for nodes to reach each other",
     FIELD(limit)},
    {.name = "profiles",
     .kind = OPT_STRING,
     .metavar = "DIR",
     .def_doc = "those of contrib/profiles",
     .example = "/etc/ddrun",
     .group = "Connections",
     .help = "directory of fabric profiles to compare variables with",
     FIELD(profiles)},
    {.name = "net",
     .kind = OPT_FLAG,
     .group = "Connections",
     .help = "measure latency and bandwidth from each node to the next",
     FIELD(net)},
    {.name = "format",
     .kind = OPT_STRING,
     .metavar = "FORMAT",
     .def = "text",
     .choices = "text,json",
     .group = "Output",
     .help = "text, or JSON with all findings of the nodes",
     FIELD(format)},
    {.name = "local",
     .kind = OPT_FLAG,
     .hidden = true,
     .help = "examine this node only (used internally)",
     FIELD(local)},
    {.name = "id",
     .kind = OPT_STRING,
     .metavar = "ID",
     .hidden = true,
     .help = "identifier of this run (used internally)",
     FIELD(id)},
    {.name = "answer-to",
     .kind = OPT_STRING,
     .metavar = "PORT/HOSTS",
     .hidden = true,
     .help = "destination of this node's result instead of stdout",
     FIELD(answer_to)},
    {.name = "node-rank",
     .kind = OPT_INT,
     .metavar = "R",
     .def = "-1",
     .min = -1,
     .max = HOSTLIST_MAX,
     .hidden = true,
     .help = "index of this node",
     FIELD(node_rank)},
};

const struct opt_table ddctl_doctor_options = {
    .program = "ddctl doctor",
    .version = PACKAGE_VERSION,
    .usage = "[options]",
    .about = "Finds problems that keep a job from starting or slow it down: name resolution, "
             "network, keys, limits, GPUs, environment variables. It starts itself on all nodes "
             "of the job, and each node connects to two others as ddrun would. Exit status 1: a "
             "problem was found; 0: none, or hints only.",
    OPT_ROWS(rows),
    .foreign = job_json,
};

struct doctor {
    const struct doctor_options *o;
    struct dd_log log;
    struct local_machine machine;
    char self[4096], id[64], program[PATH_MAX];
    struct alloc *alloc;
    const struct starter *starter;
    struct event_base *base;
    struct node_commands *commands;
    struct look_lines *lines;
    struct answers *answers; /* NULL: results arrive in the output of the starter */
    char answer_to[1024];
    json_t *looks;
};

/* ---- this node ---- */

static int ddctl_doctor_find_job(struct doctor *d, struct dd_err *err)
{
    const struct doctor_options *o = d->o;
    struct alloc_input given = {.node_rank = o->node_rank,
                                .hosts = o->hosts,
                                .hostfile = o->hostfile,
                                .master_port = o->master_port};
    if (o->local) { /* --master-addr and --rdzv-endpoint name only the first node: only --local can
                       use them */
        given.master_addr = o->master_addr;
        given.rdzv_endpoint = o->rdzv_endpoint;
    }
    int rc = local_machine_discover(&d->machine, err);
    return rc < 0 ? rc : cmd_find_alloc(&d->alloc, &d->machine, &given, &d->log, err);
}

static struct net_key_input ddctl_doctor_key_input(const struct doctor *d)
{
    const struct doctor_options *o = d->o;
    return (struct net_key_input){.env = environ,
                                  .key_file = o->key_file,
                                  .psk = d->alloc->psk,
                                  .cookie = dd_env_get_nonempty(environ, "PBS_JOBCOOKIE"),
                                  .use_cookie = strcmp(o->key_source, "pbs-cookie") == 0,
                                  .munge_socket = o->munge_socket,
                                  .insecure = o->insecure};
}

static json_t *ddctl_doctor_look(const struct doctor *d)
{
    const struct doctor_options *o = d->o;
    const struct doctor_cfg cfg = {.alloc = d->alloc,
                                   .id = d->id,
                                   .hostname = d->machine.hostname,
                                   .env = environ,
                                   .key_in = ddctl_doctor_key_input(d),
                                   .iface = o->iface,
                                   .version = PACKAGE_VERSION,
                                   .net = o->net,
                                   .limit_ms = (unsigned)(o->limit / DD_NS_PER_MS)};
    return doctor_look(&cfg);
}

static int ddctl_doctor_write_json(const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    int rc = text == NULL ? -ENOMEM : 0;
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, text, strlen(text));
    if (rc == 0)
        rc = dd_write_full(STDOUT_FILENO, "\n", 1);
    free(text);
    return rc;
}

/* Write line by line: the tasks of a launcher may share one pipe, where only writes below PIPE_BUF
 * are atomic. */
static int ddctl_doctor_write_lines(const struct dd_buf *out)
{
    int rc = 0;
    for (size_t at = 0, n; rc == 0 && at < out->len; at += n) {
        const char *line = (const char *)out->data + at;
        const char *end = memchr(line, '\n', out->len - at);
        n = end == NULL ? out->len - at : (size_t)(end - line) + 1;
        rc = dd_write_full(STDOUT_FILENO, line, n);
    }
    return rc;
}

static int ddctl_doctor_write_look(const struct doctor *d)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(MOST_OUT);
    char *text = json_dumps(json_array_get(d->looks, 0), JSON_COMPACT);
    int rc = text == NULL ? -ENOMEM : look_lines_write(&out, d->alloc->index, text, strlen(text));
    free(text);
    return rc == 0 ? ddctl_doctor_write_lines(&out) : rc;
}

/* Send the result over the network, for starters that do not return the output of their tasks. */
static int ddctl_doctor_give_look(const struct doctor *d)
{
    DD_AUTO(strv) struct dd_strv hosts = {0};
    struct dd_err err = {0};
    struct answer a = {.id = d->id,
                       .index = d->alloc->index,
                       .key_in = ddctl_doctor_key_input(d),
                       .limit_ms = GIVE_MS + (unsigned)(d->o->limit / DD_NS_PER_MS)};
    char *text = json_dumps(json_array_get(d->looks, 0), JSON_COMPACT);
    int rc = text == NULL ? dd_err_set(&err, -ENOMEM, "out of memory")
                          : answer_parse_place(d->o->answer_to, &a.port, &hosts, &err);
    a.hosts = hosts.v;
    if (rc == 0)
        rc = answer_give(&a, text, strlen(text), &err);
    if (rc < 0)
        dd_log(&d->log, DD_LOG_ERR, "%s", err.text);
    free(text);
    return rc < 0 ? NOT_GIVEN : 0;
}

/* ---- all nodes ---- */

static void ddctl_doctor_keep_look(void *arg, const void *data, size_t n)
{
    const struct doctor *d = arg;
    json_t *o = json_loadb(data, n, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(o))
        (void)json_array_append_new(d->looks, o);
    else
        json_decref(o);
}

static void ddctl_doctor_on_answer(void *arg, int index, const void *data, size_t n)
{
    (void)index;
    ddctl_doctor_keep_look(arg, data, n);
}

static void ddctl_doctor_on_done(void *arg)
{
    const struct doctor *d = arg;
    event_base_loopbreak(d->base); /* all results have arrived; do not wait for the starters */
}

static void ddctl_doctor_on_exit(void *arg, const char *where, int code, const char *out)
{
    struct doctor *d = arg;
    if (d->answers != NULL && code == NOT_GIVEN)
        dd_log(&d->log, DD_LOG_NOTICE,
               "%s: ddctl ran, but could not send its result; its messages are in the job's output",
               where);
    for (const char *p = out; *p != '\0';) {
        size_t n = strcspn(p, "\n");
        /* other lines are messages of the starter or of a shell */
        if (n > 0 && !look_lines_take(d->lines, p, n, ddctl_doctor_keep_look, d))
            dd_log(&d->log, DD_LOG_NOTICE, "%s: %.*s", where, (int)n, p);
        p += n + (p[n] == '\n');
    }
}

/* Append the command for another node: this program, which determines its own index if one starter
 * starts all nodes (index < 0). */
static int ddctl_doctor_local_command(void *arg, struct dd_strv *out, int index)
{
    const struct doctor *d = arg;
    const struct doctor_options *o = d->o;
    DD_AUTO(buf) struct dd_buf folded = DD_BUF_INIT(1 << 20);
    const struct {
        const char *name, *value;
    } options[] = {
        {"id", d->id},
        {"key-file", o->key_file},
        {"key-source", o->key_source},
        {"munge-socket", o->munge_socket},
        {"rdzv-endpoint", o->rdzv_endpoint},
        {"master-addr", o->master_addr},
        {"iface", o->iface},
        {"answer-to", d->answer_to[0] != '\0' ? d->answer_to : NULL},
    };
    int rc = dd_strv_push(out, d->self);
    if (rc == 0)
        rc = dd_strv_push(out, "doctor");
    if (rc == 0)
        rc = dd_strv_push(out, "--local");
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]) && rc == 0; i++)
        rc = dd_strv_push_option(out, options[i].name, options[i].value);
    if (rc == 0 && o->master_port > 0)
        rc = dd_strv_pushf(out, "--master-port=%d", o->master_port);
    if (rc == 0 && o->insecure)
        rc = dd_strv_push(out, "--insecure");
    if (rc == 0 && o->net)
        rc = dd_strv_push(out, "--net");
    if (rc == 0)
        rc = dd_strv_pushf(out, "--limit=%" PRIu64 "ms", o->limit / DD_NS_PER_MS);
    if (rc < 0 || index < 0)
        return rc;
    rc = hostlist_fold(d->alloc->nodes, &folded);
    const char *hosts = rc == 0 ? dd_buf_str(&folded) : NULL;
    if (hosts == NULL || dd_strv_pushf(out, "--hosts=%s", hosts) < 0)
        return -ENOMEM;
    return dd_strv_pushf(out, "--node-rank=%d", index);
}

static int ddctl_doctor_find_starter(struct doctor *d, struct dd_err *err)
{
    struct dd_err why = {0};
    const struct alloc *a = d->alloc;
    const bool any = strcmp(d->o->launcher, "auto") == 0;
    const struct starter *named = any ? NULL : starter_find(NULL, d->o->launcher, "");
    if (launch_command_check(d->o->launch_command, err) < 0)
        return err->rc;
    d->starter = launch_find(d->program, d->o->launcher, a, d->o->launch_command, &why);
    if (d->starter == NULL && why.rc == 0 && named != NULL)
        (void)dd_err_set(&why, -ENOENT, "program '%s' not found", named->program);
    if (d->starter == NULL && why.rc < 0 && !any)
        return dd_err_set(err, why.rc, "--launcher=%s: %s", d->o->launcher, why.text);
    if (d->starter == NULL)
        return dd_err_set(
            err, -ENOENT,
            "found no usable launcher for the %d nodes (source: %s, --launcher=%s)%s%.200s"
            "\n  tip: use --launcher=ssh, or another one that 'ddctl doctor --help=launcher' "
            "lists",
            a->nnodes, a->source, d->o->launcher, why.rc < 0 ? ": " : "", why.text);
    return 0;
}

/* Open a listener to which the nodes send their results, for starters that do not return output. */
static int ddctl_doctor_open_answers(struct doctor *d, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv hosts = {0};
    const struct answers_cfg cfg = {.id = d->id,
                                    .nnodes = d->alloc->nnodes,
                                    .key_in = ddctl_doctor_key_input(d),
                                    .on_answer = ddctl_doctor_on_answer,
                                    .on_done = ddctl_doctor_on_done,
                                    .arg = d};
    int rc = answers_new(&d->answers, d->base, &cfg, err);
    if (rc == 0)
        rc = local_machine_addresses(&d->machine, &hosts, d->alloc, d->alloc->index, err);
    if (rc < 0)
        return rc;
    return answers_place(d->answers, &hosts, d->answer_to, sizeof(d->answer_to), err);
}

static int ddctl_doctor_ask_all(struct doctor *d, struct dd_err *err)
{
    int rc = ddctl_doctor_find_starter(d, err);
    if (rc < 0)
        return rc;
    const unsigned limit_ms = (unsigned)(d->o->limit / DD_NS_PER_MS);
    d->base = net_loop_new();
    if (d->base == NULL || look_lines_new(&d->lines, d->alloc->nnodes) < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    rc = cmd_unset(d->starter->unset, err);
    if (rc == 0 && d->starter->must_outlive)
        rc = ddctl_doctor_open_answers(d, err);
    const struct node_commands_cfg cfg = {
        .base = d->base,
        .alloc = d->alloc,
        .starter = d->starter,
        .program = d->program,
        .words = d->o->launch_command,
        .output_max = MOST_OUT,
        .limit_ms = DOCTOR_START_MS + limit_ms +
                    (d->o->net ? NET_MS + doctor_late_ms(limit_ms) : 0),
        .command = ddctl_doctor_local_command,
        .on_exit = ddctl_doctor_on_exit,
        .on_done = ddctl_doctor_on_done,
        .arg = d};
    if (rc == 0)
        rc = node_commands_start(&d->commands, &cfg, err);
    if (rc == 0)
        event_base_dispatch(d->base);
    return rc;
}

/* ---- the findings ---- */

static int ddctl_doctor_by_index(const void *a, const void *b)
{
    json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "index"));
    json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "index"));
    return (x > y) - (x < y);
}

/* Sort the results by node, so that the output is reproducible. */
static int ddctl_doctor_sort_looks(struct doctor *d)
{
    size_t n = json_array_size(d->looks);
    DD_AUTO(free) json_t **all = calloc(n + 1, sizeof(json_t *));
    json_t *sorted = json_array();
    if (all == NULL || sorted == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        all[i] = json_array_get(d->looks, i);
    qsort(all, n, sizeof(json_t *), ddctl_doctor_by_index);
    for (size_t i = 0; i < n; i++)
        (void)json_array_append(sorted, all[i]);
    json_decref(d->looks);
    d->looks = sorted;
    return 0;
}

static int ddctl_doctor_tell_json(const struct doctor *d, json_t *findings,
                                  const struct pair_figures *pairs)
{
    json_t *all = json_pack("{s:i,s:O,s:O}", "version", 1, "findings", findings, "nodes", d->looks);
    int rc = all == NULL ? -ENOMEM : 0;
    if (rc == 0 && d->o->net)
        rc = json_object_set_new(all, "network", pair_figures_json(pairs)) < 0 ? -ENOMEM : 0;
    if (rc == 0)
        rc = ddctl_doctor_write_json(all);
    json_decref(all);
    return rc;
}

static int ddctl_doctor_write_result(const struct doctor *d, size_t findings, struct dd_buf *out)
{
    const size_t answered = json_array_size(d->looks);
    if (findings == 0)
        return dd_buf_printf(out, "no problems found on %zu node%s (" DOCTOR_CHECKS ")\n", answered,
                             answered == 1 ? "" : "s");
    return dd_buf_printf(out, "%zu of %d node%s answered; %zu finding%s\n", answered,
                         d->alloc->nnodes, d->alloc->nnodes == 1 ? "" : "s", findings,
                         findings == 1 ? "" : "s");
}

/* Append one line without control characters: its text may come from another node, or from a
 * variable. */
static int ddctl_doctor_put_line(struct dd_buf *out, const char *before, const char *text)
{
    int rc = dd_buf_puts(out, before);
    while (rc >= 0 && *text != '\0') {
        rc = dd_columns_put(out, &text, INT_MAX, true);
        if (rc >= 0 && *text == '\n') {
            rc = dd_buf_puts(out, " ");
            text++;
        }
    }
    return rc < 0 ? rc : dd_buf_puts(out, "\n");
}

static int ddctl_doctor_put_finding(struct dd_buf *out, const json_t *f)
{
    int rc = dd_buf_printf(out, "\n%s: ", json_string_value(json_object_get(f, "nodes")));
    if (rc == 0)
        rc = ddctl_doctor_put_line(out, json_is_true(json_object_get(f, "hint")) ? "hint: " : "",
                                   json_string_value(json_object_get(f, "what")));
    return rc < 0 ? rc
                  : ddctl_doctor_put_line(out, "    ", json_string_value(json_object_get(f, "do")));
}

static int ddctl_doctor_tell_text(const struct doctor *d, const json_t *findings,
                                  const struct pair_figures *pairs)
{
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(MOST_OUT);
    size_t i;
    const json_t *f;
    int rc = ddctl_doctor_write_result(d, json_array_size(findings), &out);
    json_array_foreach (findings, i, f)
        if (rc == 0)
            rc = ddctl_doctor_put_finding(&out, f);
    if (rc == 0 && pairs->n > 0)
        rc = pair_figures_write(pairs, &out);
    return rc == 0 ? ddctl_doctor_write_lines(&out) : rc;
}

static int ddctl_doctor_tell(const struct doctor *d, json_t *findings)
{
    struct pair_figures pairs;
    int rc = pair_figures_of(&pairs, d->looks, d->alloc->nodes);
    if (rc == 0)
        rc = strcmp(d->o->format, "json") == 0 ? ddctl_doctor_tell_json(d, findings, &pairs)
                                               : ddctl_doctor_tell_text(d, findings, &pairs);
    pair_figures_done(&pairs);
    return rc;
}

static int ddctl_doctor_judge_and_tell(struct doctor *d)
{
    json_t *advice = doctor_fabric_advice(d->looks, d->o->profiles);
    json_t *findings = ddctl_doctor_sort_looks(d) == 0
                           ? doctor_judge(d->looks, d->alloc->nodes, advice)
                           : NULL;
    json_decref(advice);
    const int rc = findings == NULL ? -ENOMEM : ddctl_doctor_tell(d, findings);
    const int code = rc < 0 || doctor_faults(findings) > 0;
    if (rc < 0 && rc != -EPIPE)
        dd_log(&d->log, DD_LOG_ERR, "cannot print the findings: %s", strerror(-rc));
    json_decref(findings);
    return code;
}

static int ddctl_doctor_run(struct doctor *d, struct dd_err *err)
{
    uint64_t random;
    ssize_t n = readlink("/proc/self/exe", d->self, sizeof(d->self) - 1);
    if (n <= 0 || getrandom(&random, sizeof(random), 0) < 0)
        return dd_err_set(err, -errno, "%s failed: %m",
                          n <= 0 ? "readlink of /proc/self/exe" : "getrandom");
    (void)snprintf(d->id, sizeof(d->id), "%016" PRIx64, random);
    if (d->o->id != NULL)
        (void)snprintf(d->id, sizeof(d->id), "%.60s", d->o->id);
    d->looks = json_array();
    if (etcd_url_is(d->o->rdzv_endpoint))
        return dd_err_set(err, -EINVAL,
                          "--rdzv-endpoint: etcd provides no node names for ddctl doctor"
                          "\n  tip: use --hosts or --hostfile instead of --rdzv-endpoint");
    if (d->o->profiles != NULL) {
        DD_AUTO(fd) int directory = open(d->o->profiles, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory < 0)
            return dd_err_set(err, -errno, "--profiles: cannot open '%s': %m", d->o->profiles);
    }
    int rc = ddctl_doctor_find_job(d, err);
    if (rc < 0)
        return rc;
    if (!d->o->local && d->alloc->nnodes > 1)
        rc = ddctl_doctor_ask_all(d, err);
    else
        (void)json_array_append_new(d->looks, ddctl_doctor_look(d));
    if (rc < 0)
        return rc;
    if (d->o->net && d->alloc->nnodes == 1)
        dd_log(&d->log, DD_LOG_WARN, "--net has measured nothing: the job has only one node");
    if (d->o->local)
        return d->o->answer_to != NULL ? ddctl_doctor_give_look(d) : ddctl_doctor_write_look(d) < 0;
    return ddctl_doctor_judge_and_tell(d);
}

static void ddctl_doctor_done(struct doctor *d)
{
    node_commands_free(d->commands);
    look_lines_free(d->lines);
    answers_free(d->answers);
    if (d->base != NULL)
        event_base_free(d->base);
    json_decref(d->looks);
    alloc_free(d->alloc);
    local_machine_done(&d->machine);
}

int ddctl_doctor(int argc, char **argv)
{
    struct doctor_options o = {0};
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct dd_err err = {0};
    struct doctor d = {.o = &o,
                       .log = {.fd = STDERR_FILENO,
                               .colours = dd_log_has_colours(STDERR_FILENO),
                               .who = "ddctl doctor",
                               .level = DD_LOG_NOTICE}};
    int code = cmd_options_alone(&ddctl_doctor_options, &o, argc, argv, &res);
    if (code >= 0)
        return code;
    if (res.script < argc) {
        (void)dd_err_set(&err, -EINVAL,
                         "unexpected argument '%.60s': ddctl doctor takes options only",
                         argv[res.script]);
        return cmd_fail(&ddctl_doctor_options, &err);
    }
    code = ddctl_doctor_run(&d, &err);
    ddctl_doctor_done(&d);
    return code < 0 ? cmd_fail(&ddctl_doctor_options, &err) : code;
}
