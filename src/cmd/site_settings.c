#include "cmd/site_settings.h"

#include "base/auto.h"
#include "base/log.h"
#include "hostlist/hostlist.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, SHOWN = 100 };

#define ENVIRONMENT "environment"
#define INCLUDE "include"

/* Variables that files must not set: options have the same effect, and --show-config lists them. */
static const char *const options_of_ours[] = {"DDRUN_*", "PET_*", NULL};
/* Set by src/framework for each worker. [environment] would override them with one value for all.
 */
static const char *const set_for_workers[] = {"RANK",
                                              "WORLD_SIZE",
                                              "LOCAL_*",
                                              "MASTER_*",
                                              "GROUP_*",
                                              "ROLE_*",
                                              "TORCHELASTIC_*",
                                              "SLURM_*",
                                              "PMI_*",
                                              "PMI2_*",
                                              "PMIX_*",
                                              "OMPI_COMM_WORLD_*",
                                              "OMPI_UNIVERSE_SIZE",
                                              "MV2_COMM_WORLD_*",
                                              "MPI_LOCAL*",
                                              "HOROVOD_RANK",
                                              "HOROVOD_SIZE",
                                              "HOROVOD_LOCAL_*",
                                              "HOROVOD_CROSS_*",
                                              "HOROVOD_HOSTNAME",
                                              "HOROVOD_GLOO_RENDEZVOUS_*",
                                              "CROSS_*",
                                              "CCL_LOCAL_*",
                                              "CCL_PROCESS_LAUNCHER",
                                              "JAX_COORDINATOR_*",
                                              "JAX_LOCAL_DEVICE_IDS",
                                              "TF_CONFIG",
                                              "PADDLE_MASTER",
                                              "PADDLE_NNODES",
                                              "PADDLE_TRAINER*",
                                              "PADDLE_CURRENT_ENDPOINT",
                                              "PADDLE_GLOBAL_*",
                                              "PADDLE_LOCAL_*",
                                              "PADDLE_RANK_IN_NODE",
                                              "MS_NODE_ID",
                                              "MS_ROLE",
                                              "MS_SCHED_*",
                                              "MS_WORKER*",
                                              NULL};
/* Settings of the user for libpmix, which files may set although set_for_workers matches them. */
static const char *const for_libpmix[] = {"PMIX_MCA_*", "PMIX_DEBUG*", NULL};
/* The only variables that a project file may set: others can make programs load code, write files
 * or connect to hosts. */
static const char *const for_projects[] = {"OMP_NUM_THREADS",
                                           "NCCL_DEBUG",
                                           "NCCL_DEBUG_SUBSYS",
                                           "NCCL_SOCKET_IFNAME",
                                           "GLOO_SOCKET_IFNAME",
                                           "TOKENIZERS_PARALLELISM",
                                           "PYTHONUNBUFFERED",
                                           "TORCH_SHOW_CPP_STACKTRACES",
                                           "TORCH_DISTRIBUTED_DEBUG",
                                           "TORCH_CPP_LOG_LEVEL",
                                           NULL};

/* The state while one file is read. */
struct reader {
    struct site_settings *s;
    const struct opt_table *t;
    const struct site_file *file;
    const struct site_job *job;
    struct dd_err *err;
    struct dd_strv *includes; /* receives the paths of the files to include; NULL: add the values */
    struct host_match *last; /* match of the previous host section, which the next line may share */
};

struct host_match {
    const char *pattern;
    bool applies;
};

/* One value of the file, and the section it is in. */
struct item {
    int line;
    const json_t *value;
    const char *key;
    int layer;     /* layers of higher numbers take precedence */
    bool applies;  /* the section applies to this job */
    bool variable; /* the key is a variable in an [environment] section */
};

void site_job_read(struct site_job *ret, char *const *env, const char *hostname)
{
    const bool grid_engine = dd_env_get_nonempty(env, "SGE_ROOT") != NULL;
    const char *pbs = dd_env_get_nonempty(env, "PBS_QUEUE");
    const char *lsf = dd_env_get_nonempty(env, "LSB_QUEUE");
    *ret = (struct site_job){.partition = dd_env_get_nonempty(env, "SLURM_JOB_PARTITION"),
                             .queue = pbs != NULL   ? pbs
                                      : lsf != NULL ? lsf
                                      : grid_engine ? dd_env_get_nonempty(env, "QUEUE")
                                                    : NULL,
                             .hosts = {dd_env_get_nonempty(env, "SLURMD_NODENAME"), hostname},
                             .env = env};
}

void site_settings_done(struct site_settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].value);
        free(s->v[i].place);
    }
    free(s->v);
    *s = (struct site_settings){0};
}

/* ---- the list ---- */

/* Drop the values of earlier layers: of one variable of [environment], or with NULL those that were
 * set by the name of the option. */
static void drop(struct site_settings *s, const struct opt_row *row, const char *variable)
{
    const size_t len = variable != NULL ? strlen(variable) : 0;
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct opt_setting *v = &s->v[i];
        const bool same = v->row == row && v->ahead == (variable != NULL) &&
                          (variable == NULL ||
                           (strncmp(v->value, variable, len) == 0 && v->value[len] == '='));
        if (!same) {
            s->v[kept++] = *v;
            continue;
        }
        free(v->value);
        free(v->place);
    }
    s->n = kept;
}

static int out_of_memory(struct dd_err *err)
{
    return dd_err_set(err, -ENOMEM, "out of memory");
}

/* Append a setting. Its value is the text, or "NAME=TEXT" for a variable. */
static int append(const struct reader *r, const struct opt_row *row, const struct item *it,
                  const char *text)
{
    struct site_settings *s = r->s;
    struct opt_setting *v = realloc(s->v, (s->n + 1) * sizeof(*v));
    char *value = NULL;
    char *place = NULL;
    if (v == NULL)
        return out_of_memory(r->err);
    s->v = v;
    int rc = asprintf(&value, "%s%s%s", it->variable ? it->key : "", it->variable ? "=" : "", text);
    if (rc < 0)
        return out_of_memory(r->err);
    if (asprintf(&place, "%s:%d", r->file->name, it->line) < 0) {
        free(value);
        return out_of_memory(r->err);
    }
    s->v[s->n++] = (struct opt_setting){
        .row = row, .value = value, .place = place, .ahead = it->variable};
    return 0;
}

/* ---- errors ---- */

/* A key of the file, sanitized for a message. */
struct shown {
    char text[SHOWN];
};

static struct shown show(const char *key)
{
    struct shown s;
    (void)dd_log_escape(s.text, sizeof(s.text), key, strlen(key));
    return s;
}

static int refuse_type(const struct reader *r, const struct item *it, const char *expected)
{
    return dd_err_set(r->err, -EINVAL, "%s:%d: %s: expected %s", r->file->name, it->line,
                      show(it->key).text, expected);
}

static int refuse_section(const struct reader *r, int line, const char *section)
{
    return dd_err_tip(r->err,
                      dd_err_set(r->err, -EINVAL, "%s:%d: unknown section '%s'", r->file->name,
                                 line, show(section).text),
                      "sections are [partition.NAME], [queue.NAME], [host.\"HOSTS\"] and "
                      "[" ENVIRONMENT "], also within the others");
}

/* Refuse an item whose section, the path without its last name, is unknown. */
static int refuse_path(const struct reader *r, int line, const json_t *path)
{
    char section[2 * SHOWN] = "";
    size_t len = 0;
    for (size_t i = 0; i + 1 < json_array_size(path) && len < sizeof(section); i++) {
        const char *name = json_string_value(json_array_get(path, i));
        len += (size_t)snprintf(section + len, sizeof(section) - len, "%s%s", i > 0 ? "." : "",
                                name != NULL ? name : "");
    }
    return refuse_section(r, line, section);
}

static int refuse_key(const struct reader *r, const struct item *it)
{
    const struct opt_row *row = opt_row_named(r->t, it->key);
    if (row != NULL && row->no_file)
        return dd_err_set(r->err, -EINVAL, "%s:%d: %s: a file cannot set this option",
                          r->file->name, it->line, row->name);
    const struct opt_row *near = opt_nearest_row(r->t, it->key, strlen(it->key));
    int rc = dd_err_set(r->err, -EINVAL, "%s:%d: unknown option '%s'", r->file->name, it->line,
                        show(it->key).text);
    near = near != NULL ? opt_row_named(r->t, near->name) : NULL;
    if (near != NULL && !near->no_file)
        return dd_err_tip(r->err, rc, "did you mean '%s'?", near->name);
    return dd_err_tip(r->err, rc,
                      "'%s --help=all' lists all options; a key has no dashes before it",
                      r->t->program);
}

/* ---- one value ---- */

static bool matches(const char *const *patterns, const char *name)
{
    for (; *patterns != NULL; patterns++) {
        const size_t len = strcspn(*patterns, "*");
        if (strncmp(*patterns, name, len) == 0 && ((*patterns)[len] == '*' || name[len] == '\0'))
            return true;
    }
    return false;
}

static bool is_variable_name(const char *name)
{
    size_t n = 0;
    while (isalnum((unsigned char)name[n]) || name[n] == '_')
        n++;
    return n > 0 && name[n] == '\0' && !isdigit((unsigned char)name[0]);
}

static int refuse_in_project(const struct reader *r, const struct item *it)
{
    const char *xdg = dd_env_get_nonempty(r->job->env, "XDG_CONFIG_HOME");
    int rc = dd_err_set(r->err, -EINVAL, "%s:%d: %s: a project file cannot set this %s",
                        r->file->name, it->line, show(it->key).text,
                        it->variable ? "variable" : "option");
    return dd_err_tip(r->err, rc, "put it into %s/ddrun.toml",
                      xdg != NULL && xdg[0] == '/' ? xdg : "~/.config");
}

/* Return 0 if the file may set this variable. */
static int check_variable(const struct reader *r, const struct item *it)
{
    if (!is_variable_name(it->key))
        return dd_err_set(r->err, -EINVAL, "%s:%d: '%s' is not the name of a variable",
                          r->file->name, it->line, show(it->key).text);
    if (matches(options_of_ours, it->key))
        return dd_err_tip(r->err,
                          dd_err_set(r->err, -EINVAL, "%s:%d: %s is a variable of %s itself",
                                     r->file->name, it->line, show(it->key).text, r->t->program),
                          "set the option by its name, outside of [" ENVIRONMENT
                          "], as in: log-level = \"info\"");
    if (matches(set_for_workers, it->key) && !matches(for_libpmix, it->key))
        return dd_err_set(r->err, -EINVAL, "%s:%d: %s: %s sets this variable for each worker",
                          r->file->name, it->line, show(it->key).text, r->t->program);
    return r->file->project && !matches(for_projects, it->key) ? refuse_in_project(r, it) : 0;
}

static int add_variable(const struct reader *r, const struct item *it)
{
    const struct opt_row *row = opt_row_named(r->t, "env");
    if (row == NULL || row->kind != OPT_REPEATED)
        return refuse_section(r, it->line, ENVIRONMENT);
    int rc = check_variable(r, it);
    if (rc < 0)
        return rc;
    if (!json_is_string(it->value))
        return refuse_type(r, it, "text or a number");
    if (!it->applies || dd_env_get(r->job->env, it->key) != NULL)
        return 0;
    drop(r->s, row, it->key);
    return append(r, row, it, json_string_value(it->value));
}

/* Return the text of a scalar; NULL: the option does not take its type. */
static const char *text_of(const struct opt_row *row, const json_t *value)
{
    if (json_is_string(value))
        return json_string_value(value);
    if (row->kind == OPT_FLAG && json_is_boolean(value))
        return json_is_true(value) ? "yes" : "no";
    return json_is_true(value) ? row->implied : NULL;
}

static int add_option(const struct reader *r, const struct item *it)
{
    const struct opt_row *row = opt_row_named(r->t, it->key);
    const bool list = row != NULL && row->kind == OPT_REPEATED && json_is_array(it->value);
    const size_t n = list ? json_array_size(it->value) : 1;
    int rc = 0;
    if (row == NULL || row->no_file)
        return refuse_key(r, it);
    if (r->file->project && !row->project)
        return refuse_in_project(r, it);
    if (it->applies)
        drop(r->s, row, NULL);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *text = text_of(row, list ? json_array_get(it->value, i) : it->value);
        if (text == NULL)
            return refuse_type(r, it,
                               row->kind == OPT_FLAG       ? "true or false"
                               : row->kind == OPT_REPEATED ? "text, or a list of texts"
                               : row->implied != NULL      ? "text, a number or true"
                                                           : "text or a number");
        if (it->applies)
            rc = append(r, row, it, text);
    }
    return rc;
}

/* ---- files to include ---- */

static int push_path(const struct reader *r, const struct item *it, const char *path)
{
    const char *slash = strrchr(r->file->name, '/');
    const int directory = slash != NULL ? (int)(slash - r->file->name) + 1 : 0;
    if (path == NULL || path[0] == '\0')
        return refuse_type(r, it, "the path of a file, or a list of paths");
    if (!it->applies || r->includes == NULL)
        return 0;
    return dd_strv_pushf(r->includes, "%.*s%s", path[0] == '/' ? 0 : directory, r->file->name,
                         path) < 0
               ? out_of_memory(r->err)
               : 0;
}

static int add_include(const struct reader *r, const struct item *it)
{
    const bool list = json_is_array(it->value);
    const size_t n = list ? json_array_size(it->value) : 1;
    int rc = 0;
    if (r->file->project)
        return refuse_in_project(r, it);
    if (r->file->included)
        return dd_err_set(r->err, -EINVAL, "%s:%d: a file that is included cannot include others",
                          r->file->name, it->line);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = push_path(r, it, json_string_value(list ? json_array_get(it->value, i) : it->value));
    return rc;
}

/* ---- sections ---- */

static bool is_same(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* Set it->applies for a section of hosts. */
static int match_host(const struct reader *r, const char *pattern, struct item *it)
{
    struct dd_err why = {0};
    int rc = pattern != NULL ? 0 : refuse_section(r, it->line, "host");
    it->applies = r->last->applies;
    if (rc < 0 || is_same(r->last->pattern, pattern))
        return rc;
    it->applies = false;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        const char *host = r->job->hosts[i] != NULL ? r->job->hosts[i] : "";
        const int match = hostlist_matches(pattern, host, &why);
        it->applies = it->applies || (match > 0 && host[0] != '\0');
        if (match < 0)
            rc = dd_err_set(r->err, match, "%s:%d: [host.\"...\"]: %s", r->file->name, it->line,
                            why.text);
    }
    *r->last = (struct host_match){.pattern = pattern, .applies = it->applies};
    return rc;
}

/* Find the section of a path such as ["partition", "gpu", "environment", "NCCL_DEBUG"]. */
static int place_item(const struct reader *r, const json_t *path, struct item *it)
{
    static const char *const kinds[LAYERS] = {[1] = "partition", [2] = "queue", [3] = "host"};
    const char *names[4] = {NULL};
    const size_t n = json_array_size(path);
    int rc = 0;
    bool valid = n > 0 && n <= 4;
    for (size_t i = 0; i < n && i < 4; i++) {
        names[i] = json_string_value(json_array_get(path, i));
        valid = valid && names[i] != NULL;
    }
    if (!valid)
        return refuse_path(r, it->line, path);
    it->layer = 0;
    for (int kind = 1; kind < LAYERS && n > 2; kind++)
        if (strcmp(names[0], kinds[kind]) == 0)
            it->layer = kind;
    const size_t begin = it->layer > 0 ? 2 : 0;
    if (it->layer == 3)
        rc = match_host(r, names[1], it);
    else
        it->applies = it->layer == 0 ||
                      is_same(it->layer == 1 ? r->job->partition : r->job->queue, names[1]);
    it->variable = n == begin + 2 && is_same(names[begin], ENVIRONMENT);
    it->key = names[n - 1];
    if (rc < 0)
        return rc;
    return n == begin + 1 || it->variable ? 0 : refuse_path(r, it->line, path);
}

static int add_item(const struct reader *r, const struct item *it)
{
    if (!it->variable && strcmp(it->key, INCLUDE) == 0)
        return add_include(r, it);
    if (r->includes != NULL)
        return 0;
    return it->variable ? add_variable(r, it) : add_option(r, it);
}

/* Add the values of one layer. The pass for layer 0 checks the keys of all layers. */
static int add_layer(const struct reader *r, json_t *const *records, size_t n, int layer)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct item it = {.line = (int)json_integer_value(json_array_get(records[i], 0)),
                          .value = json_array_get(records[i], 2)};
        rc = place_item(r, json_array_get(records[i], 1), &it);
        if (rc < 0 || (layer > 0 && it.layer != layer))
            continue;
        it.applies = it.applies && it.layer == layer;
        rc = add_item(r, &it);
    }
    return rc;
}

static int by_line(const void *a, const void *b)
{
    const json_int_t x = json_integer_value(json_array_get(*(json_t *const *)a, 0));
    const json_int_t y = json_integer_value(json_array_get(*(json_t *const *)b, 0));
    return (x > y) - (x < y);
}

/* Of two sections of one kind that apply, the later one in the file overrides the earlier one. */
static int add_values(const struct reader *r, const json_t *values)
{
    const size_t n = json_array_size(values);
    DD_AUTO(free) json_t **records = calloc(n + 1, sizeof(*records));
    int rc = 0;
    if (records == NULL)
        return out_of_memory(r->err);
    for (size_t i = 0; i < n; i++)
        records[i] = json_array_get(values, i);
    qsort(records, n, sizeof(*records), by_line);
    for (int layer = 0; rc == 0 && layer < LAYERS; layer++)
        rc = add_layer(r, records, n, layer);
    return rc;
}

static int read_answer(const struct reader *r, const struct dd_buf *json)
{
    json_t *o = json_loadb((const char *)json->data, json->len, 0, NULL);
    const json_t *values = json_object_get(o, "values");
    const char *error = json_string_value(json_object_get(o, "error"));
    const int line = (int)json_integer_value(json_object_get(o, "line"));
    int rc = 0;
    if (error != NULL && line > 0)
        rc = dd_err_set(r->err, -EINVAL, "%s:%d: %s", r->file->name, line, show(error).text);
    else if (error != NULL)
        rc = dd_err_set(r->err, -EINVAL, "%s: %s", r->file->name, show(error).text);
    else if (!json_is_array(values))
        rc = dd_err_set(r->err, -EINVAL, "%s: cannot be read: ddrun-toml wrote no valid answer",
                        r->file->name);
    else
        rc = add_values(r, values);
    json_decref(o);
    return rc;
}

int site_settings_includes(struct dd_strv *ret, const struct opt_table *t,
                           const struct site_file *file, const struct site_job *job,
                           const struct dd_buf *json, struct dd_err *err)
{
    struct host_match last = {0};
    const struct reader r = {
        .t = t, .file = file, .job = job, .err = err, .includes = ret, .last = &last};
    return read_answer(&r, json);
}

int site_settings_add(struct site_settings *s, const struct opt_table *t,
                      const struct site_file *file, const struct site_job *job,
                      const struct dd_buf *json, struct dd_err *err)
{
    struct host_match last = {0};
    const struct reader r = {.s = s, .t = t, .file = file, .job = job, .err = err, .last = &last};
    return read_answer(&r, json);
}

/* ---- for the other nodes ---- */

int site_settings_argv(struct dd_strv *ret, const struct site_settings *s,
                       const struct opt_table *t, const struct opt_result *res, char *const *argv)
{
    int rc = dd_strv_push(ret, argv[0]);
    if (rc == 0)
        rc = dd_strv_push(ret, "--no-config");
    for (int ahead = 1; ahead >= 0; ahead--) /* the order in which opt_parse() applies them */
        for (size_t i = 0; rc == 0 && i < s->n; i++) {
            const struct opt_setting *v = &s->v[i];
            if (v->ahead == (ahead != 0) &&
                (v->ahead || res->sources[v->row - t->rows].from == OPT_FROM_FILE))
                rc = dd_strv_pushf(ret, "--%s=%s", v->row->name, v->value);
        }
    return rc < 0 ? rc : dd_strv_copy(ret, argv + 1);
}
