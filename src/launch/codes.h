/* Combines the exit codes of the nodes into the code of the job. Pure. */
#ifndef DD_LAUNCH_CODES_H
#define DD_LAUNCH_CODES_H

#include <stdbool.h>
#include <sys/wait.h>

static inline int launch_exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Without go_on, the first non-zero exit code is the job's. With go_on (the job continues without
 * failed nodes), the job's code is 0 if any node exited with 0, since that node saw the job
 * succeed; otherwise it is that of the node that exited last. `before` < 0: no node has exited
 * yet. */
static inline int launch_code_of_job(int before, int code, bool go_on)
{
    if (before < 0)
        return code;
    bool keep = go_on ? before == 0 : before != 0;
    return keep ? before : code;
}

#endif
