/* Options for the stacks of workers: values and rows. */
#ifndef DD_CMD_STACKS_OPTIONS_H
#define DD_CMD_STACKS_OPTIONS_H

#include "base/opt.h"

struct stacks_options {
    const char *when;
    bool native;
    uint64_t timeout;
    const char *py_spy;
};

/* Option rows, for a struct that has `struct stacks_options stacks`. */
#define STACKS_ROWS(type)                                                                          \
    {.name = "stacks",                                                                             \
     .kind = OPT_STRING,                                                                           \
     .metavar = "WHEN",                                                                            \
     .def = "auto",                                                                                \
     .choices = "auto,on-failure,on-hang,off",                                                     \
     .group = "Health checks and hung workers",                                                    \
     .help = "report the stacks of all workers at a failure or hang",                              \
     .more = "At the first failure of a worker ('on-failure'), or when a worker hangs (also "      \
             "'on-hang'), each node reads the stacks of its workers before any is stopped. The "   \
             "report shows them folded, those of the fewest ranks first: the Python frames of "    \
             "CPython 3.8 to 3.15, with py-spy also those of other versions, and of other "        \
             "workers the state in the kernel. 'auto' is 'on-failure', but reads only workers "    \
             "that run Python, and those that a signal has stopped.",                              \
     OPT_FIELD(type, stacks.when)},                                                                \
        {.name = "stacks-native",                                                                  \
         .kind = OPT_FLAG,                                                                         \
         .group = "Health checks and hung workers",                                                \
         .help = "read native frames, too, with eu-stack or gdb",                                  \
         .more = "Where --stacks reads the workers, eu-stack (elfutils) or else gdb shows the "    \
                 "functions of compiled code below the Python frames, and those of programs that " \
                 "are not Python, such as MPI programs. Each worker is stopped while it is read. " \
                 "At most half of --stacks-timeout is used for it.",                               \
         OPT_FIELD(type, stacks.native)},                                                          \
        {.name = "stacks-timeout",                                                                 \
         .kind = OPT_DURATION,                                                                     \
         .metavar = "TIME",                                                                        \
         .def = "2s",                                                                              \
         .min = INT64_C(100000000),                                                                \
         .max = INT64_C(600000000000),                                                             \
         .example = "10s",                                                                         \
         .group = "Health checks and hung workers",                                                \
         .help = "time limit of --stacks for all nodes together",                                  \
         .more = "The workers are stopped at most this much later. The report names the ranks "    \
                 "that could not be read within this time.",                                       \
         OPT_FIELD(type, stacks.timeout)},                                                         \
        {.name = "py-spy",                                                                         \
         .kind = OPT_STRING,                                                                       \
         .metavar = "FILE",                                                                        \
         .def_doc = "only for versions of Python that ddrun cannot read",                          \
         .example = "/opt/tools/bin/py-spy",                                                       \
         .group = "Health checks and hung workers",                                                \
         .help = "read stacks with this py-spy; 'none': never use one",                            \
         .more =                                                                                   \
             "By default, ddrun reads Python stacks itself, and uses py-spy only for versions "    \
             "of Python that it does not support: the py-spy beside the program or its Python, "   \
             "that of the active virtual environment, or that in PATH.",                           \
         OPT_FIELD(type, stacks.py_spy)},

#endif
