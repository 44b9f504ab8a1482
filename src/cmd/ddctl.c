/* ddctl: inspect an allocation, inspect and control running jobs. The first argument is the
 * command. */
#include "cmd/ddctl.h"

#include "base/core.h"
#include "cmd/common.h"
#include "config.h"

#include <errno.h>
#include <string.h>

static const struct opt_command commands[] = {
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
    {.name = "hosts",
     .help = "print the job's nodes; expand, fold or combine host lists",
     .table = &ddctl_hosts_options,
     .run = ddctl_hosts},
    {.name = "kv",
     .help = "list and read keys of a running job's store",
     .table = &ddctl_kv_options,
     .run = ddctl_kv},
    {.name = "signal",
     .help = "send a signal to all workers of a running job",
     .table = &ddctl_signal_options,
     .run = ddctl_signal},
    {.name = "status",
     .help = "show the state of a running job: nodes, workers, failures",
     .table = &ddctl_status_options,
     .run = ddctl_status},
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

static const struct opt_command *find_command(const char *name)
{
    for (size_t i = 0; i < ddctl_options.n_commands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
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
    const struct opt_command *command = find_command(argv[res.script]);
    if (command == NULL) {
        (void)dd_err_set(&err, -EINVAL,
                         "unknown command '%.60s'"
                         "\n  tip: 'ddctl --help' lists all commands",
                         argv[res.script]);
        return cmd_fail(&ddctl_options, &err);
    }
    return command->run(argc - res.script, argv + res.script);
}
