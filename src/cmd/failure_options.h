/* Options that decide what follows a failure: values and rows. */
#ifndef DD_CMD_FAILURE_OPTIONS_H
#define DD_CMD_FAILURE_OPTIONS_H

#include "cmd/option_values.h"
#include "rdzv/exit_rules.h"

struct failure_options {
    struct exit_rules exit_rules;
    uint64_t blame_window;
    const char *progress_file, *progress_regex;
    int progress_restarts;
    const char *flight_recorder, *nccl_ras;
    uint64_t watch_nodes;
    struct signal_at drain_signal;
};

enum { WATCH_NODES_S = 60 }; /* default of --watch-nodes with --drain-signal, in seconds */

/* Check a regular expression for steps. */
int parse_progress_regex(const char *text, void *field, struct dd_err *err);

/* Rows for a struct that has `struct failure_options failure`. */
#define FAILURE_ROWS(type)                                                                                                    \
    {.name = "exit-rules",                                                                                                    \
     .kind = OPT_CUSTOM,                                                                                                      \
     .metavar = "CODE=ACTION,...",                                                                                            \
     .def = "93=no-requeue",                                                                                                  \
     .example = "16=move,64-78=stop",                                                                                         \
     .group = "Failures",                                                                                                     \
     .help = "actions by exit code: restart, stop, move, requeue, no-requeue",                                                \
     .more =                                                                                                                  \
         "CODE is a code from 1 to 255, a range such as 64-78, or a signal such as SIGBUS. "                                  \
         "ACTION is restart (the default for all codes, within --max-restarts), stop (end the "                               \
         "job with this code, without a restart), move (restart, and let a spare node take "                                  \
         "the place of this node), requeue (end the job with this code, and ask the "                                         \
         "scheduler to start it again) or no-requeue (if the job ends with this code, do not "                                \
         "requeue it). Of two rules for a code the later one applies. See docs/restarts.md.",                                 \
     .parse = parse_exit_rules,                                                                                               \
     OPT_FIELD(type, failure.exit_rules)},                                                                                    \
        {.name = "blame-window",                                                                                              \
         OPTION_TIME_OR_NEVER,                                                                                                \
         .example = "6h",                                                                                                     \
         .group = "Failures",                                                                                                 \
         .help = "replace a node on which 2 failures began within TIME",                                                      \
         .more =                                                                                                              \
             "The first failure of each round counts against its node; 'ddctl blame' shows these "                            \
             "failures. Errors that only report the failure of another node, such as a "                                      \
             "connection that a peer has closed, do not count. After two failures that count "                                \
             "within TIME, a spare node takes the place of the node; without a spare node it "                                \
             "stays, and ddrun names it. A job that Slurm or PBS requeues keeps the failures of "                             \
             "its earlier runs.",                                                                                             \
         OPT_FIELD(type, failure.blame_window)},                                                                              \
        {.name = "watch-nodes",                                                                                               \
         .kind = OPT_DURATION,                                                                                                \
         .metavar = "TIME",                                                                                                   \
         .def = "0",                                                                                                          \
         .def_doc = "never; 1m with --drain-signal",                                                                          \
         .min = 0,                                                                                                            \
         .max = INT64_C(86400000000000),                                                                                      \
         .example = "5m",                                                                                                     \
         .group = "Failures",                                                                                                 \
         .help = "ask Slurm or PBS every TIME which nodes they drain",                                                        \
         .more =                                                                                                              \
             "The first node asks for the state of all nodes by one command (scontrol show node, pbsnodes). "                 \
             "ddrun reports a drained, offline, failing or down node or one in maintenance. The next restart excludes it if " \
             "a spare node can take its place or the job can become smaller (--nnodes=MIN:MAX). "                             \
             "A command that fails changes nothing. See docs/restarts.md.",                                                   \
         OPT_FIELD(type, failure.watch_nodes)},                                                                               \
        {.name = "drain-signal",                                                                                              \
         .kind = OPT_CUSTOM,                                                                                                  \
         .metavar = "SIG@TIME",                                                                                               \
         .example = "USR1@60",                                                                                                \
         .group = "Failures",                                                                                                 \
         .help = "send SIG, then restart without drained nodes after TIME",                                                   \
         .more =                                                                                                              \
             "If the job can continue without a node that --watch-nodes has found, ddrun sends USR1 or USR2 to all workers, " \
             "which should save a checkpoint. TIME later, or when all workers have exited, "                                  \
             "ddrun starts them again without the node. This does not count as a restart.",                                   \
         .parse = parse_drain_signal,                                                                                         \
         OPT_FIELD(type, failure.drain_signal)},                                                                              \
        {.name = "flight-recorder",                                                                                           \
         .kind = OPT_STRING,                                                                                                  \
         .metavar = "WHEN",                                                                                                   \
         .def = "auto",                                                                                                       \
         .choices = "auto,on,off",                                                                                            \
         .group = "Failures",                                                                                                 \
         .help = "record the collectives of PyTorch with NCCL",                                                               \
         .more =                                                                                                              \
             "With it, 'ddctl stacks' and the report show the collective that each rank is in, if "                           \
             "ddrun reads the stacks of the workers (see --stacks). 'auto' records on nodes with GPUs. "                      \
             "ddrun does not change variables of the flight recorder that you have set.",                                     \
         OPT_FIELD(type, failure.flight_recorder)},                                                                           \
        {.name = "nccl-ras",                                                                                                  \
         .kind = OPT_STRING,                                                                                                  \
         .metavar = "WHEN",                                                                                                   \
         .def = "auto",                                                                                                       \
         .choices = "auto,on,off",                                                                                            \
         .group = "Failures",                                                                                                 \
         .help = "ask NCCL which ranks are behind or do not answer",                                                          \
         .more =                                                                                                              \
             "With it, 'ddctl stacks' and the report show which ranks have launched fewer operations "                        \
             "of a communicator than others, or do not answer, if ddrun reads the stacks of the "                             \
             "workers (see --stacks). It needs NCCL 2.24 or later, whose RAS subsystem reports this. ddrun sets "             \
             "NCCL_RAS_ADDR to a port of the job, unless you have set it. 'auto' asks on nodes with GPUs.",                   \
         OPT_FIELD(type, failure.nccl_ras)},                                                                                  \
        {.name = "progress-regex",                                                                                            \
         .kind = OPT_CUSTOM,                                                                                                  \
         .metavar = "RE",                                                                                                     \
         .example = "'step ([0-9]+)'",                                                                                        \
         .group = "Failures",                                                                                                 \
         .help = "find the step of the program in its output",                                                                \
         .more =                                                                                                              \
             "RE is an extended regular expression. ddrun searches the output lines of the first "                            \
             "worker of each node for it. The first group of RE that has matched a number "                                   \
             "is the step. See --progress-restarts; 'ddctl status' and --metrics show the "                                   \
             "step, too.",                                                                                                    \
         .parse = parse_progress_regex,                                                                                       \
         OPT_FIELD(type, failure.progress_regex)},                                                                            \
        {.name = "progress-file",                                                                                             \
         .kind = OPT_STRING,                                                                                                  \
         .metavar = "FILE",                                                                                                   \
         .example = "step.txt",                                                                                               \
         .group = "Failures",                                                                                                 \
         .help = "file that contains the step of the program",                                                                \
         .more = "The node with rank 0 reads FILE at the end of each round. FILE contains one "                               \
                 "number.",                                                                                                   \
         OPT_FIELD(type, failure.progress_file)},                                                                             \
    {                                                                                                                         \
        .name = "progress-restarts", .kind = OPT_INT, .metavar = "N", .def = "3", .min = 1,                                   \
        .max = 1000000, .needs = "progress-regex,progress-file", .group = "Failures",                                         \
        .help = "end the job after N restarts without a new step",                                                            \
        .more = "N restarts in a row that reach no step beyond the highest one end the job with "                             \
                "exit code 93, even if --max-restarts allows more. Needs --progress-regex or "                                \
                "--progress-file.",                                                                                           \
        OPT_FIELD(type, failure.progress_restarts)                                                                            \
    }

#endif
