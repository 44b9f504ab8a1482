/* --warm: starts the Python interpreter that forks workers, or one that only reports its version
 * and modules. */
#ifndef DD_WORKER_WARM_PROCESS_H
#define DD_WORKER_WARM_PROCESS_H

#include "base/err.h"
#include "worker/warm_command.h"
#include "worker/warm_msg.h"
#include "worker/worker_group.h"

struct warm_process {
    pid_t pid;
    int fd; /* the agent's end of the process's socket, nonblocking */
};

/* Start `spec`, with the program of --warm in front of its PYTHONPATH. quiet: discard the output of
 * the process. Return 0, or < 0 with a message; then there is no process. */
int warm_process_start(struct warm_process *ret, const struct worker_spec *spec,
                       const struct warm_config *c, bool quiet, struct dd_err *err);

/* Kill the process, and wait at most 1 s for its exit. */
void warm_process_end(struct warm_process *p);

/* Receive a message. Return 1; 0: there is none yet; < 0: there will be none. */
int warm_process_receive(const struct warm_process *p, struct warm_msg *ret);

/* Query the interpreter of a command line for its version and the modules that it would import;
 * *ret becomes its message WARM_PROBED. -EINVAL with a message if it cannot fork workers. */
int warm_process_probe(struct warm_msg *ret, const struct warm_command *command,
                       const struct worker_spec *spec, const struct dd_strv *modules,
                       struct dd_err *err);

#endif
