/* Options for hung workers: values and rows. */
#ifndef DD_CMD_HANG_OPTIONS_H
#define DD_CMD_HANG_OPTIONS_H

#include "base/opt.h"
#include "cmd/option_values.h"

#include <stdbool.h>
#include <string.h>

struct hang_options {
    uint64_t timeout;
    int signs;           /* bits of HANG_SIGN_*, or HANG_SIGNS_ACTIVITY */
    const char *command; /* command, or "cuda-core"; NULL: not given */
};

static inline bool hang_options_cuda_core(const struct hang_options *o)
{
    return o->command != NULL && strcmp(o->command, "cuda-core") == 0;
}

/* Option rows, for a struct that has `struct hang_options hang`. */
#define HANG_ROWS(type)                                                                                                \
    {.name = "hang-timeout",                                                                                           \
     .project = true,                                                                                                  \
     .common = true,                                                                                                   \
     OPTION_TIME_OR_NEVER,                                                                                             \
     .example = "10m",                                                                                                 \
     .group = "Health checks and hung workers",                                                                        \
     .help = "end the workers when none has been active for TIME",                                                     \
     .more =                                                                                                           \
         "--hang-sign chooses what counts as activity. ddrun treats a hung worker as failed. It "                      \
         "reports the stacks of all workers (see --stacks). The hung worker then gets "                                \
         "SIGABRT, on which Python's faulthandler prints its stacks, and SIGKILL 10 s later. "                         \
         "Time in which ddrun is stopped does not count, nor does that in which a debugger "                           \
         "holds the worker.",                                                                                          \
     OPT_FIELD(type, hang.timeout)},                                                                                   \
        {.name = "hang-sign",                                                                                          \
         .kind = OPT_CUSTOM,                                                                                           \
         .metavar = "WHAT,...",                                                                                        \
         .def = "activity",                                                                                            \
         .example = "output,network",                                                                                  \
         .needs = "hang-timeout",                                                                                      \
         .group = "Health checks and hung workers",                                                                    \
         .help = "signs of activity, such as output, cpu or network",                                                  \
         .more =                                                                                                       \
             "output: output of the worker, which ddrun reads through a pipe. file: a change of the worker's "         \
             "heartbeat file. cpu: more than 2 % of a processor, used or waited for. io: more than 4 KiB/s "           \
             "read and written. network: more than 1 KiB/s on TCP connections, including those to the "                \
             "store. any: output and file. "                                                                           \
             "activity: all five signs; all but cpu where programs busy-wait: on nodes with GPUs and, with --mpi, "    \
             "while a rank of the node is between MPI_Init and MPI_Finalize. With "                                    \
             "output and file only, ddrun ends each worker that shows neither within --hang-timeout. "                 \
             "With any other sign, a worker may wait while another one is active: ddrun ends the "                     \
             "workers when none of the job has been active within --hang-timeout. "                                    \
             "The variable DDRUN_HEARTBEAT_FILE contains the path of a worker's "                                      \
             "heartbeat file; a training loop may call "                                                               \
             "os.utime(os.environ[\"DDRUN_HEARTBEAT_FILE\"]) in each step. In a container, this "                      \
             "path may not exist: os.utime(int(os.environ[\"DDRUN_HEARTBEAT_FD\"])) touches the "                      \
             "same file by an open descriptor.",                                                                       \
         .parse = parse_hang_signs,                                                                                    \
         OPT_FIELD(type, hang.signs)},                                                                                 \
        {.name = "on-hang",                                                                                            \
         .kind = OPT_STRING,                                                                                           \
         .metavar = "CMD|cuda-core",                                                                                   \
         .example = "'gcore $DDRUN_HUNG_PID'",                                                                         \
         .needs = "hang-timeout",                                                                                      \
         .group = "Health checks and hung workers",                                                                    \
         .help = "run CMD or write CUDA core dumps before killing hung workers",                                       \
         .more =                                                                                                       \
             "ddrun runs CMD before it kills the worker, for at most 60 s, and sends no SIGABRT. DDRUN_HUNG_PID and "  \
             "DDRUN_HUNG_RANK identify the worker. ddrun reports the output of the command. "                          \
             "'cuda-core' makes CUDA's driver write a core dump, without the contents of GPU memory, of the GPUs of "  \
             "each worker on the node of the hung worker, to the worker's directory below --log-dir. ddrun waits for " \
             "the dumps for at most 60 s, and the report names them.",                                                 \
         OPT_FIELD(type, hang.command)},

#endif
