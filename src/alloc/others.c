/* LSF, Grid Engine, OAR and Cobalt: the job's id is in a variable, its nodes are in a file or
 * another variable. One row each. Flux sets no variable with the nodes: its row only explains how
 * to start ddrun.
 *
 * Src: manuals, public sources and pages of sites; none of these systems was run.
 * - A node file has one line per slot or core. Lines of Grid Engine are "host slots queue
 * processors"; a host that serves two queues has two lines.
 * - LSF with CSM lists the node that runs the script first, although it is not part of the job:
 * jsrun starts one task fewer than there are hosts.
 * - Cobalt on XC systems provides only numbers of nodes, and runs scripts on another machine.
 */
#include "alloc/alloc_inner.h"

#include "base/num.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct other {
    const char *name; /* name of the system, for messages */
    const char *jobs; /* variables that form the job's id, comma separated; the first must be set */
    const char *also; /* alternative name of the first variable in jobs; NULL: none */
    const char *needs; /* variable that must also be set, because the first one's name is too
                          common; NULL: none */
    const char *files; /* variables with the path of the node file, comma separated; the first that
                          is set counts; NULL: none */
    bool first_word;   /* only the first word of each line counts */
    /* Reads the nodes if no variable in `files` is set; -ENODATA: no variable has them. NULL: there
     * is no other source. */
    int (*list)(struct hostlist **ret, const struct alloc_input *in, struct dd_err *err);
    bool elsewhere;  /* the script does not run on a node of the job */
    const char *tip; /* what to do in a script if ddrun cannot start the other nodes; say_start() */
};

static const char *var(const struct alloc_input *in, const char *name)
{
    return dd_env_get_nonempty(in->env, name);
}

/* Return the value of the first of some variables that is set; `name` becomes the name of that
 * variable. */
static const char *first_of(const struct alloc_input *in, const char *names, char name[64])
{
    for (const char *p = names; p != NULL && *p != '\0'; p += *p == ',') {
        size_t n = strcspn(p, ",");
        (void)snprintf(name, 64, "%.*s", (int)n, p);
        if (var(in, name) != NULL)
            return var(in, name);
        p += n;
    }
    return NULL;
}

/* Return the job's id; NULL: no variable has it. `name` becomes the name of the variable. */
static const char *job_of(const struct other *o, const struct alloc_input *in, char name[64])
{
    const size_t n = strcspn(o->jobs, ",");
    (void)snprintf(name, 64, "%.*s", (int)n, o->jobs);
    if (var(in, name) == NULL && o->also != NULL)
        (void)snprintf(name, 64, "%s", o->also);
    return var(in, name);
}

/* ---- nodes ---- */

static int push_new(struct hostlist *nodes, const char *name)
{
    for (size_t i = 0; i < hostlist_count(nodes); i++)
        if (strcmp(hostlist_nth(nodes, i), name) == 0)
            return 0;
    return hostlist_push(nodes, name);
}

/* Return every step-th word of a variable as a list. */
static int words(struct hostlist **ret, const struct alloc_input *in, const char *name, size_t step,
                 struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    DD_AUTO(strv) struct dd_strv w = {0};
    if (hostlist_new(&nodes) < 0 || dd_strv_split(&w, var(in, name), " \t") < 0)
        return alloc_no_memory(err);
    for (size_t i = 0; i < w.n; i += step) {
        if (!hostlist_name_ok(w.v[i]))
            return dd_err_set(err, -EINVAL, "%s: invalid host name '%.80s'", name, w.v[i]);
        const int rc = push_new(nodes, w.v[i]);
        if (rc == -E2BIG)
            return dd_err_set(err, rc, "%s has more than %d nodes", name, HOSTLIST_MAX);
        if (rc < 0)
            return alloc_no_memory(err);
    }
    *ret = DD_TAKE(nodes);
    return 0;
}

static int lsf_list(struct hostlist **ret, const struct alloc_input *in, struct dd_err *err)
{
    if (var(in, "LSB_MCPU_HOSTS") != NULL) /* "host slots host slots" */
        return words(ret, in, "LSB_MCPU_HOSTS", 2, err);
    return var(in, "LSB_HOSTS") != NULL ? words(ret, in, "LSB_HOSTS", 1, err) : -ENODATA;
}

/* Parse "3-4,7" to the names nid00003, nid00004 and nid00007. */
static int cobalt_list(struct hostlist **ret, const struct alloc_input *in, struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    DD_AUTO(strv) struct dd_strv parts = {0};
    const char *text = var(in, "COBALT_PARTNAME");
    if (text == NULL)
        return -ENODATA;
    if (hostlist_new(&nodes) < 0 || dd_strv_split(&parts, text, ",") < 0)
        return alloc_no_memory(err);
    for (size_t i = 0; i < parts.n; i++) {
        int from = 0;
        int to = 0;
        char *dash = strchr(parts.v[i], '-');
        if (dash != NULL)
            *dash = '\0';
        if (dd_num_int(parts.v[i], 0, 99999, &from) < 0 ||
            dd_num_int(dash != NULL ? dash + 1 : parts.v[i], from, 99999, &to) < 0)
            return dd_err_set(err, -EINVAL,
                              "COBALT_PARTNAME=%.80s is not a list of node numbers such as 3-4,7",
                              text);
        for (int k = from; k <= to; k++) {
            char name[16];
            (void)snprintf(name, sizeof(name), "nid%05d", k);
            const int rc = push_new(nodes, name);
            if (rc == -E2BIG)
                return dd_err_set(err, rc, "COBALT_PARTNAME=%.80s has more than %d nodes", text,
                                  HOSTLIST_MAX);
            if (rc < 0)
                return alloc_no_memory(err);
        }
    }
    *ret = DD_TAKE(nodes);
    return 0;
}

/* Keep only the first word of each line. */
static void keep_first_words(struct dd_buf *text)
{
    bool word = true;
    size_t to = 0;
    for (size_t i = 0; i < text->len; i++) {
        unsigned char c = text->data[i];
        word = c == '\n' || (word && c != ' ' && c != '\t');
        if (word)
            text->data[to++] = c;
    }
    text->len = to;
}

static int read_nodes(struct hostlist **ret, const struct other *o, const struct alloc_input *in,
                      struct dd_err *err)
{
    char name[64];
    DD_AUTO(buf) struct dd_buf text = DD_BUF_INIT(8 << 20);
    const char *path = first_of(in, o->files, name);
    if (path == NULL)
        return o->list != NULL ? o->list(ret, in, err) : -ENODATA;
    int rc = in->read_file(path, &text, err);
    if (rc < 0)
        return rc;
    if (o->first_word)
        keep_first_words(&text);
    return alloc_hostfile_parse(ret, path, text.len > 0 ? (const char *)text.data : "", text.len,
                                err);
}

/* True if the list begins with the script's node, which is not part of the job. In a task of jsrun:
 * if there is one task fewer than there are hosts. In the script: if CSM's variable is set, unless
 * LSF gives that node more than one slot. Src: PRRTE's sources; LSF under CSM was never run. */
static bool has_script_node(const struct hostlist *nodes, const struct alloc_input *in)
{
    DD_AUTO(strv) struct dd_strv w = {0};
    const char *size = var(in, "JSM_NAMESPACE_SIZE");
    const char *slots = var(in, "LSB_MCPU_HOSTS");
    int n;
    if (size != NULL)
        return dd_num_int(size, 1, HOSTLIST_MAX, &n) == 0 && hostlist_count(nodes) == (size_t)n + 1;
    if (var(in, "CSM_ALLOCATION_ID") == NULL || alloc_is_mpi(in) || in->max_nodes == 1 ||
        hostlist_count(nodes) < 2)
        return false;
    return slots == NULL || (dd_strv_split(&w, slots, " \t") == 0 && w.n >= 4 &&
                             strcmp(w.v[1], "1") == 0 && strcmp(w.v[0], w.v[2]) != 0);
}

static int drop_first(struct hostlist **nodes)
{
    DD_AUTO(hostlist) struct hostlist *rest = NULL;
    int rc = hostlist_new(&rest);
    for (size_t i = 1; i < hostlist_count(*nodes) && rc == 0; i++)
        rc = hostlist_push(rest, hostlist_nth(*nodes, i));
    if (rc < 0)
        return rc;
    hostlist_free(*nodes);
    *nodes = DD_TAKE(rest);
    return 0;
}

/* ---- the job ---- */

static int stale(const struct other *o, const struct alloc_input *in, struct dd_strv *warnings,
                 const char *why, struct dd_err *err)
{
    char name[64];
    const char *id = job_of(o, in, name);
    int rc = dd_strv_pushf(
        warnings, "%s=%.80s is stale, or belongs to a job of another machine: %s; ignoring it",
        name, id, why);
    return rc < 0 ? alloc_no_memory(err) : ALLOC_STALE;
}

static int say_start(const struct hostlist *nodes, const struct other *o, struct dd_err *err)
{
    struct alloc_shown shown;
    const size_t n = hostlist_count(nodes);
    return dd_err_set(
        err, -EINVAL,
        "ddrun was started once, from the script of a job of %s with %zu node%s (%s), and "
        "cannot start %s"
        "\n  tip: %s; or use --nnodes=1 to run on this host alone",
        o->name, n, n == 1 ? "" : "s", alloc_show(&shown, nodes),
        n == 1 ? "one there" : "the others", o->tip);
}

static int detect(const struct other *o, const struct alloc_input *in, struct dd_strv *warnings,
                  struct dd_err *err)
{
    DD_AUTO(hostlist) struct hostlist *nodes = NULL;
    struct dd_err why = {.text = ""};
    struct alloc_shown shown;
    char text[400];
    char name[64];
    const char *id = job_of(o, in, name);
    if (id == NULL || (o->needs != NULL && var(in, o->needs) == NULL))
        return 0;
    if (!alloc_id_ok(id))
        return dd_err_set(err, -EINVAL, "%s=%.80s is not a valid job id", name, id);
    int rc = read_nodes(&nodes, o, in, &why);
    if (rc == -ENODATA) /* a job with one node, or not a job of this system */
        return 0;
    if (rc == -ENOENT || rc == -EACCES)
        return stale(o, in, warnings, why.text, err);
    if (rc < 0)
        return dd_err_set(err, rc, "%s", why.text);
    if (hostlist_count(nodes) == 0)
        return stale(o, in, warnings, "its node list is empty", err);
    if (alloc_find_me(in, nodes) >= 0 || alloc_is_mpi(in) || in->list_only)
        return 1;
    if (o->elsewhere)
        return in->max_nodes == 1 ? 0 : say_start(nodes, o, err);
    (void)snprintf(text, sizeof(text), "this host (%.100s) is not in %s", in->hostname,
                   alloc_show(&shown, nodes));
    return stale(o, in, warnings, text, err);
}

/* Form the job's id from its variables, skipping those without information. */
static int put_id(struct dd_buf *id, const struct other *o, const struct alloc_input *in)
{
    DD_AUTO(strv) struct dd_strv names = {0};
    int rc = dd_strv_split(&names, o->jobs, ",");
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        char name[64];
        const char *text = i == 0 ? job_of(o, in, name) : var(in, names.v[i]);
        if (text != NULL && strcmp(text, "undefined") != 0 && strcmp(text, "0") != 0 &&
            alloc_id_ok(text))
            rc = dd_buf_printf(id, "%s%s", i > 0 ? "." : "", text);
    }
    return rc;
}

static bool own(const struct other *o, char *const *env, char ret[ALLOC_ID_SIZE])
{
    DD_AUTO(buf) struct dd_buf id = DD_BUF_INIT(ALLOC_ID_SIZE);
    const struct alloc_input in = {.env = env};
    char name[64];
    if (job_of(o, &in, name) == NULL || (o->needs != NULL && var(&in, o->needs) == NULL) ||
        put_id(&id, o, &in) < 0 || id.len == 0)
        return false;
    const char *text = dd_buf_str(&id);
    return text != NULL && snprintf(ret, ALLOC_ID_SIZE, "%s", text) < ALLOC_ID_SIZE;
}

static int set_id(struct alloc *a, const struct other *o, const struct alloc_input *in,
                  struct dd_err *err)
{
    DD_AUTO(buf) struct dd_buf id = DD_BUF_INIT(400);
    const char *text = put_id(&id, o, in) == 0 ? dd_buf_str(&id) : NULL;
    if (text == NULL || alloc_set(&a->run_id, "%s", text) < 0 ||
        alloc_set(&a->job_id, "%s.%s", a->source, text) < 0)
        return alloc_no_memory(err);
    return 0;
}

static int fill(struct alloc *a, const struct other *o, const struct alloc_input *in,
                struct dd_err *err)
{
    struct alloc_shown shown;
    int rc = read_nodes(&a->nodes, o, in, err);
    const bool elsewhere = o->elsewhere ||
                           (rc == 0 &&
                            has_script_node(a->nodes,
                                            in)); /* the script does not run on a node of the job */
    if (rc == 0 && elsewhere && !o->elsewhere && drop_first(&a->nodes) < 0)
        rc = alloc_no_memory(err);
    if (rc == 0 && !in->list_only)
        rc = alloc_check_mpi(in, a->nodes, err);
    if (rc < 0)
        return rc;
    a->nnodes = (int)hostlist_count(a->nodes);
    a->index = alloc_find_me(in, a->nodes);
    if (a->index < 0)
        a->index = alloc_mpi_place(in, a->nnodes);
    a->script = !alloc_is_mpi(in) &&
                (a->index >= 0 ||
                 elsewhere); /* else the variables are of a job on other machines */
    if (in->list_only && a->index < 0)
        a->index = -1;
    else if (a->index < 0 && a->script)
        return say_start(a->nodes, o, err);
    else if (a->index < 0)
        return dd_err_set(err, -EINVAL,
                          "this host (%s) is not a node of this job of %s (%s)"
                          "\n  tip: use --hosts=LIST --node-rank=R",
                          in->hostname, o->name, alloc_show(&shown, a->nodes));
    if (a->script && a->nnodes > 1 && in->max_nodes != 1 && !in->list_only) {
        rc = alloc_check_nnodes(a->nodes, a->nnodes, a->source, in, err);
        return rc < 0 ? rc : say_start(a->nodes, o, err);
    }
    return set_id(a, o, in, err);
}

/* ---- the rows ---- */

#define ROW(row, source, vars, text)                                                               \
    static int row##_detect(const struct alloc_input *in, struct dd_strv *warnings,                \
                            struct dd_err *err)                                                    \
    {                                                                                              \
        return detect(&row, in, warnings, err);                                                    \
    }                                                                                              \
    static int row##_fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)       \
    {                                                                                              \
        return fill(a, &row, in, err);                                                             \
    }                                                                                              \
    static bool row##_own(char *const *env, char ret[ALLOC_ID_SIZE])                               \
    {                                                                                              \
        return own(&row, env, ret);                                                                \
    }                                                                                              \
    const struct alloc_ops alloc_##row = {                                                         \
        .name = source,                                                                            \
        .doc = text,                                                                               \
        .variables = vars,                                                                         \
        .start = "run ddrun in the job's script",                                                  \
        .ask = "run ddctl in the job's script, or in a process that its launcher started",         \
        .detect = row##_detect,                                                                    \
        .fill = row##_fill,                                                                        \
        .own = row##_own}

static const struct other lsf = {
    .name = "LSF",
    .jobs = "LSB_JOBID,LSB_JOBINDEX",
    .files = "LSB_DJOB_HOSTFILE",
    .list = lsf_list,
    .tip = "check that blaunch is in PATH, or run: jsrun -n N -r 1 -a 1 -c ALL_CPUS -g ALL_GPUS "
           "ddrun ...",
};
ROW(lsf, "lsf", "LSB_*", "LSF: bsub's script, blaunch, jsrun or an mpiexec");

static const struct other sge = {
    .name = "Grid Engine",
    .jobs = "JOB_ID,SGE_TASK_ID,RESTARTED",
    .needs = "SGE_ROOT",
    .files = "PE_HOSTFILE",
    .first_word = true,
    .tip = "check that qrsh is in PATH and that the parallel environment has control_slaves TRUE",
};
ROW(sge, "sge", "SGE_*, JOB_ID and PE_HOSTFILE",
    "Grid Engine: qsub's script in a parallel environment, or an mpiexec");

static const struct other oar = {
    .name = "OAR",
    .jobs = "OAR_JOB_ID,OAR_ARRAY_INDEX",
    .also = "OAR_JOBID",
    .files = "OAR_NODEFILE,OAR_NODE_FILE,OAR_FILE_NODES",
    .tip = "check that oarsh is in PATH",
};
ROW(oar, "oar", "OAR_*", "OAR: oarsub's script, or an mpiexec");

static const struct other cobalt = {
    .name = "Cobalt",
    .jobs = "COBALT_JOBID",
    .files = "COBALT_NODEFILE",
    .tip = "check that ssh is in PATH",
};
ROW(cobalt, "cobalt", "COBALT_*", "Cobalt: qsub's script, or an mpirun");

static const struct other cobalt_xc = {
    .name = "Cobalt",
    .jobs = "COBALT_JOBID",
    .list = cobalt_list,
    .elsewhere = true,
    .tip = "check that aprun is in PATH",
};
ROW(cobalt_xc, "cobalt-xc", "COBALT_*",
    "Cobalt on an XC system: aprun started one ddrun on each node");

static int flux_refuse(const struct alloc_input *in, const char *what, const char *option,
                       struct dd_err *err)
{
    if (in->list_only)
        return dd_err_set(err, -EINVAL,
                          "%s"
                          "\n  tip: run 'flux hostlist local'",
                          what);
    return dd_err_set(
        err, -EINVAL,
        "%s"
        "\n  tip: run: ddrun %s--hosts=\"$(flux hostlist local)\" ..., or use --nnodes=1 to "
        "run on this host (%s) alone",
        what, option, in->hostname);
}

/* Tasks of Flux exchange their names by PMI-1 (launched.c). A batch script is the first process of
 * an instance of its own, which has no variable with the number of nodes. */
static int flux_detect(const struct alloc_input *in, struct dd_strv *warnings, struct dd_err *err)
{
    int n = 0;
    char text[80];
    (void)warnings;
    if (in->max_nodes == 1 || (var(in, "PMI_FD") != NULL && var(in, "PMI_RANK") != NULL))
        return 0;
    if (var(in, "FLUX_JOB_ID") == NULL && var(in, "FLUX_ENCLOSING_ID") != NULL &&
        var(in, "FLUX_URI") != NULL)
        return flux_refuse(
            in, "in the script of a Flux job (FLUX_ENCLOSING_ID), no variable names the nodes",
            "--launcher=flux ", err);
    if (var(in, "FLUX_JOB_ID") == NULL)
        return 0;
    int rc = alloc_env_int(in, "FLUX_JOB_NNODES", 1, HOSTLIST_MAX, &n, err);
    if (rc <= 0 || n == 1)
        return rc < 0 ? rc : 0;
    (void)snprintf(text, sizeof(text), "in a Flux job of %d nodes, no variable names the nodes", n);
    return flux_refuse(in, text, "", err);
}

static int flux_fill(struct alloc *a, const struct alloc_input *in, struct dd_err *err)
{
    (void)a;
    (void)in;
    return dd_err_set(err, -EINVAL, "not a Flux job"); /* flux_detect() never returns 1 */
}

/* Return the job's id, which Flux's PMI also reports as the name of the job. Src: flux-core's
 * shell; not run. */
static bool flux_own(char *const *env, char ret[ALLOC_ID_SIZE])
{
    return alloc_own_is(env, "FLUX_JOB_ID", ret);
}

const struct alloc_ops alloc_flux = {
    .name = "flux",
    .doc = "Flux: explains what to run, since no variable names a job's nodes",
    .detect = flux_detect,
    .fill = flux_fill,
    .own = flux_own,
};
