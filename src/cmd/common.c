#include "cmd/common.h"

#include "base/io.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void cmd_sanitize_process(void)
{
    int fd;
    do /* otherwise a later socket could become the stdout of a worker */
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* if SIGCHLD is ignored, the kernel discards exit statuses */
}

bool cmd_is_first_task(char *const *env)
{
    static const char *const ranks[] = {"SLURM_PROCID",         "PMI_RANK",    "PMIX_RANK",
                                        "OMPI_COMM_WORLD_RANK", "PBS_NODENUM", "PALS_RANKID",
                                        "JSM_NAMESPACE_RANK",   "ALPS_APP_PE", "FLUX_TASK_RANK"};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        const char *text = dd_env_get(env, ranks[i]);
        int rank;
        if (text != NULL && dd_num_int(text, 1, INT_MAX, &rank) == 0)
            return false;
    }
    return true;
}

/* True if the command line itself is wrong, which all tasks of a step share; a variable may be
 * wrong in this task alone. */
static bool cmd_wrong_everywhere(const struct opt_table *t, void *values,
                                 const struct opt_input *in)
{
    char *nothing[] = {NULL};
    DD_AUTO(opt_result) struct opt_result res = {0};
    return opt_parse(t, values,
                     &(struct opt_input){.argc = in->argc, .argv = in->argv, .env = nothing}, &res,
                     NULL) < 0;
}

void cmd_warn_of_misspelt(const struct opt_table *t, const struct dd_log *log)
{
    char right[64];
    if (!cmd_is_first_task(environ))
        return;
    for (char *const *e = environ; *e != NULL; e++)
        if (opt_env_misspelt(t, *e, right))
            dd_log(log, DD_LOG_WARN, "ignoring unknown variable %.*s of %s; did you mean %s?",
                   (int)strcspn(*e, "="), *e, t->program, right);
}

/* Warn that the option of the row has no effect without the option that row->needs names, or
 * without one of two. */
static void warn_of_idle(const struct opt_row *row, const struct dd_log *log)
{
    const size_t first = strcspn(row->needs, ",");
    const bool two = row->needs[first] == ',';
    dd_log(log, DD_LOG_WARN, "--%s has no effect without --%.*s%s%s", row->name, (int)first,
           row->needs, two ? " or --" : "", two ? row->needs + first + 1 : "");
}

void cmd_warn_of_idle(const struct opt_table *t, const struct opt_result *res,
                      const struct dd_log *log)
{
    if (!cmd_is_first_task(environ))
        return;
    for (size_t i = 0; i < t->n_rows; i++)
        if (opt_is_idle(res, t, &t->rows[i]))
            warn_of_idle(&t->rows[i], log);
}

/* Handle --help and similar options. Return -1 if there is none, otherwise the exit code. */
static int cmd_answer(const struct opt_table *t, const struct opt_result *res)
{
    if (res->ask == OPT_ASK_NOTHING)
        return -1;
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    return opt_answer(t, res, &out) < 0 ? 1 : cmd_write(t, &out);
}

int cmd_options(const struct opt_table *t, void *values, int argc, char **argv,
                struct opt_result *res)
{
    return cmd_options_from(t, values,
                            &(struct opt_input){.argc = argc, .argv = argv, .env = environ}, res);
}

int cmd_options_from(const struct opt_table *t, void *values, const struct opt_input *in,
                     struct opt_result *res)
{
    struct dd_err err = {0};
    struct dd_log log = {.fd = STDERR_FILENO, .colours = dd_log_has_colours(STDERR_FILENO)};
    (void)snprintf(log.who, sizeof(log.who), "%s", t->program);
    if (opt_parse(t, values, in, res, &err) < 0) {
        if (cmd_is_first_task(environ) || !cmd_wrong_everywhere(t, values, in))
            dd_log(&log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    return cmd_answer(t, res);
}

int cmd_write(const struct opt_table *t, const struct dd_buf *out)
{
    struct dd_log log = {.fd = STDERR_FILENO, .colours = dd_log_has_colours(STDERR_FILENO)};
    int rc = dd_write_full(STDOUT_FILENO, out->data, out->len);
    if (rc == 0 || rc == -EPIPE)
        return 0;
    (void)snprintf(log.who, sizeof(log.who), "%s", t->program);
    dd_log(&log, DD_LOG_ERR, "cannot write to stdout: %s", strerror(-rc));
    return 1;
}

int cmd_fail(const struct opt_table *t, const struct dd_err *err)
{
    struct dd_log log = {.fd = STDERR_FILENO, .colours = dd_log_has_colours(STDERR_FILENO)};
    (void)snprintf(log.who, sizeof(log.who), "%s", t->program);
    dd_log(&log, DD_LOG_ERR, "%s", err->text);
    return EXIT_USAGE;
}

int cmd_options_alone(const struct opt_table *t, void *values, int argc, char **argv,
                      struct opt_result *res)
{
    struct dd_err err = {0};
    opt_options_first(t, argc, argv);
    if (opt_parse(t, values, &(struct opt_input){.argc = argc, .argv = argv, .env = environ}, res,
                  &err) < 0)
        return cmd_fail(t, &err);
    return cmd_answer(t, res);
}

int cmd_unset(const char *names, struct dd_err *err)
{
    DD_AUTO(strv) struct dd_strv words = {0};
    if (names != NULL && dd_strv_split(&words, names, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < words.n; i++)
        (void)unsetenv(words.v[i]);
    return 0;
}

int cmd_find_alloc(struct alloc **ret, struct local_machine *m, const struct alloc_input *given,
                   const struct dd_log *log, struct dd_err *err)
{
    struct alloc_input in = *given;
    local_machine_describe(m, &in);
    in.list_only = true;
    int rc = alloc_find(ret, &in, err);
    for (size_t i = 0; rc == 0 && i < (*ret)->warnings.n; i++)
        dd_log(log, DD_LOG_WARN, "%s", (*ret)->warnings.v[i]);
    return rc;
}

enum dd_log_level cmd_log_level(const char *name)
{
    static const char *const names[] = {
        [DD_LOG_ERR] = "error", [DD_LOG_WARN] = "warning", [DD_LOG_NOTICE] = "notice",
        [DD_LOG_INFO] = "info", [DD_LOG_DEBUG] = "debug",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum dd_log_level)i;
    return DD_LOG_NOTICE;
}
