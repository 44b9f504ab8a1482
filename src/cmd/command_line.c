#include "cmd/command_line.h"

#include "base/uid.h"
#include "cmd/common.h"
#include "cmd/ddrun_check.h"
#include "cmd/ddrun_doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void command_line_done(struct command_line *c)
{
    opt_result_done(&c->result);
    horovodrun_done(&c->options.horovodrun);
    dd_strv_done(&c->script);
    free(DD_TAKE(c->rows));
}

/* argv[0] may be torchrun or horovodrun: the same program with other defaults. */
static void command_line_choose_table(struct command_line *c, const char *argv0)
{
    c->table = ddrun_options;
    if (torchrun_is_name(argv0))
        c->rows = torchrun_rows(&c->table);
    if (c->rows != NULL) {
        c->table.program = "torchrun";
        c->table.rows = c->rows;
        c->table.epilog =
            "Examples:\n"
            "  torchrun --standalone --nproc-per-node=4 train.py --epochs 3\n"
            "  torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=node1:29500 train.py\n";
    }
    if (horovodrun_is_name(argv0))
        c->table.program = "horovodrun";
}

/* In "ddrun -x train.py", train.py has become the value of -x. */
static int command_line_no_script(int argc, char **argv, struct dd_err *err)
{
    const bool taken = argc > 2 && argv[argc - 1][0] != '-' && argv[argc - 2][0] == '-' &&
                       strchr(argv[argc - 2], '=') == NULL;
    int rc = taken ? dd_err_set(err, -EINVAL,
                                "missing SCRIPT ('%.100s' was taken as the value of %.60s)",
                                argv[argc - 1], argv[argc - 2])
                   : dd_err_set(err, -EINVAL, "missing SCRIPT");
    return dd_err_tip(err, rc, "for example: ddrun --nproc-per-node=2 train.py");
}

static void command_line_warn(const struct command_line *c, bool launched, const struct dd_log *log)
{
    cmd_warn_of_misspelt(&c->table, log);
    if (!launched) {
        cmd_warn_of_idle(&c->table, &c->result, log);
        warn_of_fixed_size(&c->options, &c->table, &c->result, log);
    }
    if (cmd_is_first_task(environ))
        torchrun_tell(&c->options, log);
}

/* With --doctor, this call replaces the process by ddctl and does not return. */
static int command_line_check(struct command_line *c, int argc, char **argv, bool launched,
                              const struct dd_log *log, struct dd_err *err)
{
    struct ddrun_options *o = &c->options;
    int rc = horovodrun_apply(&o->horovodrun, o, err);
    if (rc == 0)
        rc = check_options(o, err);
    if (rc == 0 && !o->insecure)
        rc = dd_uid_check(err);
    if (rc == 0 && !launched)
        warn_of_unset(o, log);
    if (rc == 0 && o->doctor != NULL)
        rc = doctor_become(o, err);
    else if (c->result.script >= argc)
        rc = command_line_no_script(argc, argv, err);
    return rc;
}

int command_line_read(struct command_line *c, int argc, char **argv, bool launched,
                      struct dd_log *log)
{
    struct dd_err err = {0};
    command_line_choose_table(c, argv[0]);
    int code = cmd_options(&c->table, &c->options, argc, argv, &c->result);
    if (code >= 0)
        return code;
    torchrun_apply(&c->options, &c->table, &c->result, torchrun_is_name(argv[0]));
    c->options.shutdown_said = opt_is_given(&c->result, &c->table, "shutdown-timeout");
    log->level = cmd_log_level(c->options.log_level);
    log->trace = c->options.trace;
    command_line_warn(c, launched, log);
    if (command_line_check(c, argc, argv, launched, log, &err) < 0) {
        if (cmd_is_first_task(environ))
            dd_log(log, DD_LOG_ERR, "%s", err.text);
        return EXIT_USAGE;
    }
    if (dd_strv_push(&c->script, argv[c->result.script]) < 0 ||
        dd_strv_copy(&c->script, argv + c->result.args) < 0) {
        dd_log(log, DD_LOG_ERR, "out of memory");
        return 1;
    }
    return -1;
}
