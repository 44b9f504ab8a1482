/* The exit code of a job from those of its nodes. Pure. */
#ifndef DD_LAUNCH_CODES_H
#define DD_LAUNCH_CODES_H

#include <stdbool.h>
#include <sys/wait.h>

static inline int launch_exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The first failure is the job's. Where a job goes on without the node that failed, whoever ends
 * well has seen the job end well. `before` is < 0 when none has ended yet. */
static inline int launch_code_of_job(int before, int code, bool go_on)
{
    if (before < 0)
        return code;
    bool keep = go_on ? before == 0 : before != 0;
    return keep ? before : code;
}

#endif
