/* ddctl env: print the variables that ddrun would set for a worker, for scripts that start their
 * workers themselves. */
#include "base/quote.h"
#include "cmd/common.h"
#include "cmd/ddctl.h"
#include "cmd/ddctl_job.h"
#include "cmd/ddctl_meet.h"
#include "cmd/framework_options.h"
#include "config.h"
#include "framework/framework.h"
#include "node/gpu.h"
#include "rdzv/elect.h"
#include "rdzv/task_layout.h"
#include "worker/rules.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct env_options {
    int rank, node, nproc_per_node;
    const char *hosts, *hostfile, *master_addr, *rdzv_id;
    int master_port;
    bool whole_job;
    struct framework_options framework;
    const char *format;
};

#define FIELD(name) OPT_FIELD(struct env_options, name)

static const struct opt_row rows[] = {
    {.name = "rank",
     .kind = OPT_INT,
     .metavar = "R",
     .def = "-1",
     .def_doc = "this process",
     .min = -1,
     .max = PLAN_MAX_NODES * PLAN_MAX_SLOTS - 1,
     .example = "0",
     .group = "Worker",
     .help = "print the variables of rank R",
     FIELD(rank)},
    {.name = "node",
     .kind = OPT_INT,
     .metavar = "K",
     .def = "-1",
     .def_doc = "this process",
     .min = -1,
     .max = PLAN_MAX_NODES - 1,
     .example = "0",
     .group = "Worker",
     .help = "print the variables common to the workers of node K (from 0)",
     FIELD(node)},

    {.name = "nproc-per-node",
     .kind = OPT_INT,
     .metavar = "N",
     .def = "0",
     .def_doc = "the launcher's tasks per node, or 1",
     .min = 0,
     .max = PLAN_MAX_SLOTS,
     .example = "4",
     .group = "The job",
     .help = "workers on each node",
     FIELD(nproc_per_node)},
    {.name = "hosts",
     .kind = OPT_STRING,
     .metavar = "LIST",
     .example = "'node[1-4]'",
     .group = "The job",
     .help = "nodes of the job, if no scheduler names them",
     FIELD(hosts)},
    {.name = "hostfile",
     .kind = OPT_STRING,
     .metavar = "FILE",
     .example = "nodes.txt",
     .group = "The job",
     .help = "file with one node per line",
     FIELD(hostfile)},
    {.name = "rdzv-id",
     .kind = OPT_STRING,
     .metavar = "ID",
     .example = "run7",
     .group = "The job",
     .help = "name of this run; each name has its own ports",
     FIELD(rdzv_id)},
    {.name = "whole-job",
     .kind = OPT_FLAG,
     .group = "The job",
     .help = "use the same ports in the batch script and all its steps",
     .more = "Otherwise each step has its own ports, so that several steps can run at once.",
     FIELD(whole_job)},
    {.name = "master-addr",
     .kind = OPT_STRING,
     .metavar = "ADDR",
     .example = "10.0.0.1",
     .group = "The job",
     .help = "value of MASTER_ADDR",
     FIELD(master_addr)},
    {.name = "master-port",
     .kind = OPT_INT,
     .metavar = "PORT",
     .min = 0,
     .max = 65535,
     .def_doc = "derived from the job id",
     .example = "29500",
     .group = "The job",
     .help = "value of MASTER_PORT",
     FIELD(master_port)},

    {OPTION_FRAMEWORK(struct env_options), .group = "Frameworks",
     .help = "add variables of jax, tensorflow, paddle or mindspore"},
    {OPTION_TF(struct env_options), .group = "Frameworks", .help = "add TF_CONFIG for TensorFlow"},
    {OPTION_ROLES(struct env_options), .group = "Frameworks",
     .help = "TensorFlow task types in rank order (with --tf)"},
    {OPTION_ENV(struct env_options), .group = "Frameworks",
     .help = "set NAME for all workers, or for RANKS such as 0,3-5"},

    {.name = "format",
     .kind = OPT_STRING,
     .metavar = "HOW",
     .def = "sh",
     .choices = "sh,csh,json,values",
     .group = "Output",
     .help = "shell commands, a JSON object, or values only",
     .more = "A variable to unset is null in JSON and is omitted from the values. Values are "
             "printed one per line.",
     FIELD(format)},
};

const struct opt_table ddctl_env_options = {
    .program = "ddctl env",
    .version = PACKAGE_VERSION,
    .usage = "[options] [NAME...]",
    .about = "Prints the environment variables that ddrun would set for a worker in this "
             "allocation, for scripts that start their workers themselves: "
             "eval \"$(ddctl env)\". It does not ask a running job. With NAMEs, prints only these "
             "variables.",
    .mixed = true,
    OPT_ROWS(rows),
    .foreign = job_json,
};

static int ddctl_env_no_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* ---- the job ---- */

static int ddctl_env_find_alloc(struct alloc **ret, const struct env_options *o, struct dd_err *err)
{
    DD_AUTO(local_machine) struct local_machine m = {0};
    const struct dd_log log = {.fd = STDERR_FILENO,
                               .colours = dd_log_has_colours(STDERR_FILENO),
                               .who = "ddctl env",
                               .level = DD_LOG_WARN};
    const struct alloc_input said = {
        .node_rank = -1,
        .hosts = o->hosts,
        .hostfile = o->hostfile,
        .rdzv_id = o->rdzv_id,
        .whole_job = o->whole_job,
        .nonce = getuid()}; /* the nonce is constant, so that every call for this job prints the
                               same values */
    int rc = local_machine_discover(&m, err);
    return rc < 0 ? rc : cmd_find_alloc(ret, &m, &said, &log, err);
}

/* Hashed ports in a fixed order: store, coordinator, then from ELECT_PORTS on one port for each
 * worker of a node. No process listens on them yet. */
enum { PORT_MASTER, PORT_COORDINATOR };

static int ddctl_env_add_endpoint(struct dd_strv *out, const char *host, uint16_t port)
{
    return strchr(host, ':') != NULL ? dd_strv_pushf(out, "[%s]:%u", host, port)
                                     : dd_strv_pushf(out, "%s:%u", host, port);
}

static int ddctl_env_set_ports(struct task_layout *p, const struct alloc *a,
                               const struct env_options *o, struct dd_err *err)
{
    uint16_t ports[ELECT_MAX];
    struct plan *plan = &p->plan;
    DD_AUTO(strv) struct dd_strv coordinator = {0};
    int most = 0;
    for (int i = 0; i < plan->nnodes; i++)
        most = plan->sizes[i] > most ? plan->sizes[i] : most;
    const bool workers = framework_wants_ports(framework_options_names(&o->framework));
    if (workers && most > ELECT_MAX - ELECT_PORTS)
        return dd_err_set(err, -EINVAL,
                          "too many workers on one node for TensorFlow or Paddle: %d (limit %d, "
                          "one port each)",
                          most, ELECT_MAX - ELECT_PORTS);
    if (workers && p->scattered)
        return dd_err_set(
            err, -EINVAL,
            "cannot determine the node of each task: the launcher does not number ranks node by "
            "node"
            "\n  tip: number ranks node by node, for example with srun --distribution=block");
    elect_ports(a->job_id, 0, ports, workers ? ELECT_PORTS + most : ELECT_PORTS);
    plan->master_port = o->master_port > 0 ? (uint16_t)o->master_port
                        : a->nports > 0    ? a->ports[0]
                                           : ports[PORT_MASTER];
    if (ddctl_env_add_endpoint(&coordinator, plan->master_addr, ports[PORT_COORDINATOR]) < 0)
        return ddctl_env_no_memory(err);
    plan->coordinator = DD_TAKE(coordinator.v[0]);
    for (int i = 0; i < plan->nnodes && workers; i++) {
        const char *name = plan->nnodes == 1 ? plan->master_addr
                                             : hostlist_nth(p->nodes, (size_t)i);
        for (int k = 0; k < plan->sizes[i]; k++)
            if (ddctl_env_add_endpoint(&plan->endpoints, name, ports[ELECT_PORTS + k]) < 0)
                return ddctl_env_no_memory(err);
    }
    return 0;
}

/* ---- the environment ---- */

struct answer {
    struct dd_strv entries; /* "NAME=value", or "NAME" if the variable is to be unset */
    const struct dd_strv *ours;
};

static int ddctl_env_put(void *arg, const char *name, const char *value)
{
    struct answer *a = arg;
    if (dd_env_get(a->ours->v, name) != NULL)
        return 0;
    return value == NULL ? dd_strv_push(&a->entries, name)
                         : dd_strv_pushf(&a->entries, "%s=%s", name, value);
}

static int ddctl_env_make_env(struct dd_strv *out, char *const *base,
                              const struct framework_input *in, const struct env_options *o,
                              struct dd_err *err)
{
    int rc = framework_env(out, base, in, err);
    if (rc == 0 && rules_env(out, o->framework.env.v, in->plan->first_rank + in->local_rank) < 0)
        rc = ddctl_env_no_memory(err);
    return rc;
}

/* Collect the variables that a worker gets, including those that are unchanged, and those to unset.
 */
static int ddctl_env_worker_entries(struct dd_strv *ret, const struct framework_input *in,
                                    const struct env_options *o, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv ours = {0};
    DD_AUTO(strv) struct dd_strv env = {0};
    struct answer a = {.ours = &ours};
    char *nothing[] = {NULL};
    int rc = ddctl_env_make_env(&ours, nothing, in, o, err);
    if (rc == 0)
        rc = ddctl_env_make_env(&env, environ, in, o, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < ours.n && rc == 0; i++) {
        const size_t len = strcspn(ours.v[i], "=");
        DD_AUTO(free) char *name = strndup(ours.v[i], len);
        const char *value = name != NULL ? dd_env_get(env.v, name) : NULL;
        if (name == NULL)
            rc = -ENOMEM;
        else if (value != NULL)
            rc = dd_strv_pushf(&a.entries, "%s=%s", name, value);
    }
    if (rc == 0)
        rc = dd_env_diff(environ, env.v, ddctl_env_put, &a);
    *ret = a.entries;
    return rc < 0 ? ddctl_env_no_memory(err) : 0;
}

static bool ddctl_env_has(const struct dd_strv *sv, const char *entry)
{
    for (size_t i = 0; i < sv->n; i++)
        if (strcmp(sv->v[i], entry) == 0)
            return true;
    return false;
}

/* Keep only the entries of *all that *more contains, too. */
static int ddctl_env_keep_common(struct dd_strv *all, const struct dd_strv *more)
{
    struct dd_strv kept = {0};
    int rc = 0;
    for (size_t i = 0; i < all->n && rc == 0; i++)
        if (ddctl_env_has(more, all->v[i]))
            rc = dd_strv_push(&kept, all->v[i]);
    dd_strv_done(all);
    *all = kept;
    return rc;
}

/* The entries that all workers collected so far have in common. */
struct common {
    struct dd_strv entries;
    bool begun; /* false: no worker so far */
};

/* Keep in c only the entries that n workers of a node, from local rank `first` on, have, too. */
static int ddctl_env_node_entries(struct common *c, struct framework_input *in, int first, int n,
                                  const struct env_options *o, struct dd_err *err)
{
    int rc = 0;
    for (in->local_rank = first; in->local_rank < first + n && rc == 0; in->local_rank++) {
        DD_AUTO(strv) struct dd_strv one = {0};
        rc = ddctl_env_worker_entries(&one, in, o, err);
        if (rc == 0 && c->begun && ddctl_env_keep_common(&c->entries, &one) < 0)
            rc = ddctl_env_no_memory(err);
        if (rc == 0 && !c->begun) {
            c->entries = one;
            one = (struct dd_strv){0};
            c->begun = true;
        }
    }
    return rc;
}

static int ddctl_env_find_entries(struct dd_strv *ret, struct task_layout *p,
                                  const struct env_options *o, struct dd_err *err)
{
    struct node_gpus gpus;
    struct net_worker_ifaces ifs = {0};
    struct common c = {0};
    int rc = node_gpus_count(&gpus, environ, "", err);
    if (rc < 0)
        return rc;
    if (p->here)
        meet_find_ifaces(&ifs, &p->plan);
    struct framework_input in = {.plan = &p->plan,
                                 .iface = ifs.used[0] != '\0' ? ifs.used : NULL,
                                 .nccl_iface = ifs.nccl[0] != '\0' ? ifs.nccl : NULL,
                                 .gpus = gpus.count,
                                 .frameworks = framework_options_names(&o->framework),
                                 .tf_roles = framework_options_roles(&o->framework),
                                 .by_hand = true};
    if (p->node >= 0)
        rc = ddctl_env_node_entries(&c, &in, p->first, p->n, o, err);
    for (int i = 0, first = 0; p->node < 0 && i < p->plan.nnodes && rc == 0;
         first += p->plan.sizes[i++]) {
        p->plan.node_rank = i;
        p->plan.first_rank = first;
        p->plan.local_size = p->plan.sizes[i];
        rc = ddctl_env_node_entries(&c, &in, 0, p->plan.sizes[i], o, err);
    }
    *ret = c.entries;
    return rc;
}

/* ---- what is written ---- */

static int ddctl_env_write_shell(struct dd_buf *out, const char *name, const char *value, bool csh,
                                 struct dd_err *err)
{
    if (value == NULL)
        return dd_buf_printf(out, csh ? "unsetenv %s;\n" : "unset %s;\n", name);
    int rc = dd_buf_printf(out, csh ? "setenv %s " : "export %s=", name);
    if (rc == 0)
        rc = csh ? dd_quote_csh(out, value) : dd_quote_sh(out, value);
    if (rc == -EINVAL)
        return dd_err_set(err, rc,
                          "the value of %s contains a newline, which csh cannot read"
                          "\n  tip: use --format=json",
                          name);
    return rc < 0 ? rc : dd_buf_puts(out, ";\n");
}

static int ddctl_env_put_json(json_t *object, const char *name, const char *value,
                              struct dd_err *err)
{
    json_t *text = value == NULL ? json_null() : json_string(value);
    if (text == NULL)
        return dd_err_set(err, -EINVAL,
                          "the value of %s is not valid UTF-8 and cannot be written as JSON", name);
    return json_object_set_new(object, name, text) < 0 ? -ENOMEM : 0;
}

static int ddctl_env_write_entry(struct dd_buf *out, json_t *object, const char *entry,
                                 const char *format, struct dd_err *err)
{
    DD_AUTO(free) char *name = strndup(entry, strcspn(entry, "="));
    const char *value = strchr(entry, '=');
    value += value != NULL;
    if (name == NULL)
        return -ENOMEM;
    if (strcmp(format, "json") == 0)
        return ddctl_env_put_json(object, name, value, err);
    if (strcmp(format, "values") == 0)
        return value == NULL ? 0 : dd_buf_printf(out, "%s\n", value);
    return ddctl_env_write_shell(out, name, value, strcmp(format, "csh") == 0, err);
}

static int ddctl_env_write_entries(struct dd_buf *out, const struct dd_strv *entries,
                                   const char *format, struct dd_err *err)
{
    json_t *object = json_object();
    int rc = object == NULL ? -ENOMEM : 0;
    for (size_t i = 0; i < entries->n && rc == 0; i++)
        rc = ddctl_env_write_entry(out, object, entries->v[i], format, err);
    if (rc == 0 && strcmp(format, "json") == 0) {
        DD_AUTO(free) char *text = json_dumps(object,
                                              JSON_INDENT(2) | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
        rc = text == NULL ? -ENOMEM : dd_buf_printf(out, "%s\n", text);
    }
    json_decref(object);
    return rc < 0 && rc != -EINVAL ? ddctl_env_no_memory(err) : rc;
}

/* Keep only the entries that `names` selects, in the order of `names`. */
static int ddctl_env_pick(struct dd_strv *entries, char *const *names, const struct task_layout *p,
                          struct dd_err *err)
{
    struct dd_strv picked = {0};
    int rc = 0;
    for (; *names != NULL && rc == 0; names++) {
        const size_t len = strlen(*names);
        size_t i = 0;
        while (i < entries->n && (strncmp(entries->v[i], *names, len) != 0 ||
                                  (entries->v[i][len] != '=' && entries->v[i][len] != '\0')))
            i++;
        rc = i < entries->n ? dd_strv_push(&picked, entries->v[i])
             : p->node >= 0 && p->n == 1
                 ? dd_err_set(err, -EINVAL,
                              "ddrun sets no variable '%.80s' for this worker"
                              "\n  tip: omit the name to print all variables of this worker",
                              *names)
                 : dd_err_set(err, -EINVAL,
                              "'%.80s' is not set, or differs between the workers %s"
                              "\n  tip: use --rank=R",
                              *names, p->node >= 0 ? "of the node" : "of the job");
    }
    dd_strv_done(entries);
    *entries = picked;
    return rc == -ENOMEM ? ddctl_env_no_memory(err) : rc;
}

static int ddctl_env_check(const struct env_options *o, int argc, char *const *words,
                           struct dd_err *err)
{
    int rc = framework_options_check(&o->framework, err);
    for (int i = 0; i < argc && rc == 0; i++)
        if (words[i][0] == '-')
            rc = dd_err_set(err, -EINVAL, "'%.60s' is not a variable: it begins with a dash",
                            words[i]);
    return rc;
}

static int ddctl_env_answer(struct dd_buf *out, const struct env_options *o, char *const *names,
                            struct dd_err *err)
{
    DD_AUTO(alloc) struct alloc *a = NULL;
    DD_AUTO(task_layout) struct task_layout p = {0};
    DD_AUTO(strv) struct dd_strv entries = {0};
    int rc = ddctl_env_find_alloc(&a, o, err);
    if (rc < 0)
        return rc;
    const struct task_layout_input in = {
        .alloc = a, .env = environ, .slots = o->nproc_per_node, .rank = o->rank, .node = o->node};
    rc = task_layout_find(&p, &in, err);
    if (rc == 0)
        rc = meet_find_addr(&p.plan.master_addr, &p, a, o->master_addr, err);
    if (rc == 0)
        rc = ddctl_env_set_ports(&p, a, o, err);
    if (rc == 0)
        rc = ddctl_env_find_entries(&entries, &p, o, err);
    if (rc == 0 && *names != NULL)
        rc = ddctl_env_pick(&entries, names, &p, err);
    return rc < 0 ? rc : ddctl_env_write_entries(out, &entries, o->format, err);
}

int ddctl_env(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(32 << 20);
    struct env_options o = {0};
    struct dd_err err = {0};
    int code = cmd_options_alone(&ddctl_env_options, &o, argc, argv, &res);
    if (code < 0) {
        char *const *words = argv + res.script;
        int rc = ddctl_env_check(&o, argc - res.script, words, &err);
        if (rc == 0)
            rc = ddctl_env_answer(&out, &o, words, &err);
        code = rc < 0 ? cmd_fail(&ddctl_env_options, &err) : cmd_write(&ddctl_env_options, &out);
    }
    opt_values_done(&ddctl_env_options, &o);
    return code;
}
