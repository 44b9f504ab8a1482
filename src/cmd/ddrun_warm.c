/* --warm: checks the program and its interpreter before anything starts. */
#include "cmd/ddrun_run.h"

#include "cmd/ddrun_check.h"
#include "cmd/warm_options.h"
#include "worker/program.h"
#include "worker/warm_process.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN = 8 }; /* modules that --dry-run names */

int warm_options_check(const struct ddrun_options *o, struct dd_err *err)
{
    const char *other = NULL;
    if (o->wrap.n > 0)
        other = "--wrap";
    else if (o->preload.n > 0)
        other = "--preload";
    else if (framework_wrap(framework_options_names(&o->framework)) != NULL)
        other = "--framework=mindspore"; /* the only framework with a wrapper */
    if (o->warm == NULL || other == NULL)
        return 0;
    return dd_err_set(err, -EINVAL,
                      "--warm cannot be combined with %s, which acts when a worker is executed; "
                      "--warm forks the workers instead",
                      other);
}

/* True for names such as "torch" and "torch.distributed". */
static bool is_module_name(const char *name)
{
    bool begins = true;
    for (; *name != '\0'; name++) {
        const unsigned char c = (unsigned char)*name;
        if (begins ? !(isalpha(c) || c == '_' || c >= 0x80)
                   : !(isalnum(c) || c == '_' || c == '.' || c >= 0x80))
            return false;
        begins = c == '.';
    }
    return !begins;
}

static int read_modules(struct run *r, struct dd_err *err)
{
    const char *text = r->o->warm;
    if (strcmp(text, WARM_AUTO) == 0)
        return 0;
    if (dd_strv_split(&r->warm.modules, text, ",") < 0)
        return dd_err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < r->warm.modules.n; i++)
        if (!is_module_name(r->warm.modules.v[i]))
            return dd_err_set(err, -EINVAL, "--warm: '%.100s' is not the name of a Python module",
                              r->warm.modules.v[i]);
    return r->warm.modules.n > 0 ? 0 : dd_err_set(err, -EINVAL, "--warm: no module is named");
}

/* Describe the answer of the probe: "--warm imports torch (default)". */
static int describe_plan(struct run *r, const char *answer)
{
    DD_AUTO(buf) struct dd_buf b = DD_BUF_INIT(WARM_TEXT_MAX + 200);
    DD_AUTO(strv) struct dd_strv lines = {0};
    if (dd_strv_split(&lines, answer, "\n") < 0)
        return -ENOMEM;
    const size_t n = lines.n > 0 ? lines.n - 1 : 0;
    int rc = dd_buf_puts(&b, n == 0 ? "--warm imports no module" : "--warm imports ");
    for (size_t i = 0; i < n && i < SHOWN && rc == 0; i++)
        rc = dd_buf_printf(&b, "%s%s", i > 0 ? ", " : "", lines.v[i + 1]);
    if (n > SHOWN && rc == 0)
        rc = dd_buf_puts(&b, ", ...");
    if (rc == 0 && n > 0)
        rc = dd_buf_printf(&b, " (%s)", lines.v[0]);
    r->warm.plan = rc == 0 ? dd_buf_steal(&b) : NULL;
    return r->warm.plan == NULL ? -ENOMEM : 0;
}

static int parse_command(struct run *r, struct dd_err *err)
{
    char *const *argv = r->program.v;
    if (!warm_command_is_python(argv[0], r->env.v))
        return dd_err_set(
            err, -EINVAL,
            "--warm is for Python programs, which '%.200s' is not"
            "\n  tip: if it is a Python script, run it as ddrun --warm python3 %.200s",
            r->script[0], r->script[0]);
    int rc = warm_command_parse(&r->warm.command, argv, err);
    if (rc == 0 && strstr(r->warm.command.target, "local_rank") != NULL &&
        strchr(r->warm.command.target, '$') != NULL && r->warm.command.kind[0] != 'c')
        return dd_err_set(err, -EINVAL, "--warm needs one program for all workers, not '%.200s'",
                          r->warm.command.target);
    return rc;
}

static int probe(struct run *r, struct dd_err *err)
{
    struct warm_msg answer;
    const struct worker_spec spec = {
        .argv = r->program, .env = r->env, .directory = r->directory, .rank = -1};
    int rc = warm_process_probe(&answer, &r->warm.command, &spec,
                                r->warm.modules.n > 0 ? &r->warm.modules : NULL, err);
    if (rc < 0)
        return rc;
    return describe_plan(r, answer.text) < 0 ? dd_err_set(err, -ENOMEM, "out of memory") : 0;
}

int run_find_warm(struct run *r, struct dd_err *err)
{
    if (r->o->warm == NULL)
        return 0;
    int rc = read_modules(r, err);
    if (rc == 0)
        rc = parse_command(r, err);
    /* with --stage, the other nodes need not have the interpreter, nor the first one if it comes in
     * an archive */
    const bool here = r->o->stage.paths.n == 0 ||
                      (r->alloc->index <= 0 && access(r->program.v[0], X_OK) == 0);
    return rc == 0 && here ? probe(r, err) : rc;
}

void run_warm_done(struct run *r)
{
    warm_command_done(&r->warm.command);
    dd_strv_done(&r->warm.modules);
    free(DD_TAKE(r->warm.plan));
}
