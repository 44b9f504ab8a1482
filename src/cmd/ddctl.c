/* ddctl: inspect an allocation, inspect and control running jobs. The first argument is the
 * command. */
#include "cmd/ddctl.h"

#include "base/core.h"
#include "cmd/common.h"
#include "config.h"

#include <errno.h>
#include <string.h>

static int ddctl_help(int argc, char **argv);

static const struct opt_table ddctl_help_options = {
    .program = "ddctl help",
    .version = PACKAGE_VERSION,
    .usage = "[COMMAND]",
    .about = "Shows the options of a command, or lists the commands.",
};

static const struct opt_command commands[] = {
    {.name = "blame",
     .help = "show the nodes on which failures of a running job began",
     .table = &ddctl_blame_options,
     .run = ddctl_blame},
    {.name = "doctor",
     .help = "find problems of the job's nodes, with remedies",
     .table = &ddctl_doctor_options,
     .run = ddctl_doctor},
    {.name = "drain",
     .help = "remove a node from a running job",
     .table = &ddctl_drain_options,
     .run = ddctl_drain},
    {.name = "env",
     .help = "print the environment of a worker, for scripts",
     .table = &ddctl_env_options,
     .run = ddctl_env},
    {.name = "events",
     .help = "show the events of a running job, with timestamps",
     .table = &ddctl_events_options,
     .run = ddctl_events},
    {.name = "help",
     .help = "show the options of a command, or list the commands",
     .table = &ddctl_help_options,
     .run = ddctl_help},
    {.name = "hosts",
     .help = "print the job's nodes; expand, fold or combine host lists",
     .table = &ddctl_hosts_options,
     .run = ddctl_hosts},
    {.name = "jobs",
     .help = "list your jobs that run on this node",
     .table = &ddctl_jobs_options,
     .run = ddctl_jobs},
    {.name = "kv",
     .help = "list and read keys of a running job's store",
     .table = &ddctl_kv_options,
     .run = ddctl_kv},
    {.name = "metrics",
     .help = "print the metrics of a running job, for monitoring",
     .table = &ddctl_metrics_options,
     .run = ddctl_metrics},
    {.name = "profile",
     .help = "show which operations a running job's store executes",
     .table = &ddctl_profile_options,
     .run = ddctl_profile},
    {.name = "report",
     .help = "print the report of a finished job (ddrun --report)",
     .table = &ddctl_report_options,
     .run = ddctl_report},
    {.name = "signal",
     .help = "send USR1 or USR2 to all workers, or end the job (TERM, INT)",
     .table = &ddctl_signal_options,
     .run = ddctl_signal},
    {.name = "stacks",
     .help = "show what the workers of a running job are executing",
     .table = &ddctl_stacks_options,
     .run = ddctl_stacks},
    {.name = "status",
     .help = "show the state of a running job: nodes, workers, failures",
     .table = &ddctl_status_options,
     .run = ddctl_status},
    {.name = "submit",
     .help = "submit a ddrun command as a job, after checks",
     .table = &ddctl_submit_options,
     .run = ddctl_submit},
    {.name = "timeline",
     .help = "show where the time of a job went (ddrun --timeline)",
     .table = &ddctl_timeline_options,
     .run = ddctl_timeline},
    {.name = "top",
     .help = "show the workers of a running job on the whole terminal",
     .table = &ddctl_top_options,
     .run = ddctl_top},
    {.name = "web",
     .help = "show a running job on a page in your browser",
     .table = &ddctl_web_options,
     .run = ddctl_web},
};

static const struct opt_table ddctl_options = {
    .program = "ddctl",
    .version = PACKAGE_VERSION,
    .usage = "COMMAND [options] [ARG...]",
    .about = "Inspect and control running jobs. "
             "'ddctl COMMAND --help' shows the options of a command.",
    .commands = commands,
    .n_commands = sizeof(commands) / sizeof(commands[0]),
};

#define STOP_TIP "'ddctl signal TERM' stops the job"
#define LOG_TIP                                                                                    \
    "ddrun prints the output of the workers, and --log-dir keeps it; "                             \
    "'ddctl top' shows the last line of each"

/* Words that are no commands of ddctl, and the command or ddrun option that replaces them. */
static const struct {
    const char *word, *tip;
} other_words[] = {
    {"cancel", STOP_TIP}, {"kill", STOP_TIP}, {"log", LOG_TIP},
    {"logs", LOG_TIP},    {"stop", STOP_TIP},
};

static int tip_for_unknown(const char *name, struct dd_err *err)
{
    for (size_t i = 0; i < sizeof(other_words) / sizeof(other_words[0]); i++)
        if (strcmp(other_words[i].word, name) == 0)
            return dd_err_tip(err, -EINVAL, "%s", other_words[i].tip);
    const struct opt_command *near = opt_nearest_command(&ddctl_options, name);
    return near != NULL ? dd_err_tip(err, -EINVAL, "did you mean '%s'?", near->name)
                        : dd_err_tip(err, -EINVAL, "'ddctl --help' lists all commands");
}

/* Return the command; NULL with an error: it does not exist. */
static const struct opt_command *find_command(const char *name, struct dd_err *err)
{
    for (size_t i = 0; i < ddctl_options.n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    (void)dd_err_set(err, -EINVAL, "unknown command '%.60s'", name);
    (void)tip_for_unknown(name, err);
    return NULL;
}

static int ddctl_help(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    DD_AUTO(buf) struct dd_buf out = DD_BUF_INIT(1 << 20);
    struct dd_err err = {0};
    char none; /* the table has no option with a value */
    const struct opt_table *about = &ddctl_options;
    int code = cmd_options_alone(&ddctl_help_options, &none, argc, argv, &res);
    if (code >= 0)
        return code;
    if (res.args < argc) {
        (void)dd_err_set(&err, -EINVAL, "unexpected argument '%.60s'", argv[res.args]);
        return cmd_fail(&ddctl_help_options, &err);
    }
    if (res.script < argc) {
        const struct opt_command *command = find_command(argv[res.script], &err);
        if (command == NULL)
            return cmd_fail(&ddctl_help_options, &err);
        about = command->table;
    }
    return opt_help(about, "", &out) < 0 ? 1 : cmd_write(&ddctl_help_options, &out);
}

int main(int argc, char **argv)
{
    DD_AUTO(opt_result) struct opt_result res = {0};
    struct dd_err err = {0};
    char none; /* the table has no option with a value */
    cmd_sanitize_process();
    dd_core_empty();
    int code = cmd_options_alone(&ddctl_options, &none, argc, argv, &res);
    if (code >= 0)
        return code;
    if (res.script >= argc) {
        (void)dd_err_set(&err, -EINVAL,
                         "missing command"
                         "\n  tip: 'ddctl --help' lists all commands");
        return cmd_fail(&ddctl_options, &err);
    }
    const struct opt_command *command = find_command(argv[res.script], &err);
    return command != NULL ? command->run(argc - res.script, argv + res.script)
                           : cmd_fail(&ddctl_options, &err);
}
