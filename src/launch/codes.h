/* Combines the exit codes of the nodes to the code of the job. Pure. */
#ifndef DD_LAUNCH_CODES_H
#define DD_LAUNCH_CODES_H

#include <stdbool.h>
#include <sys/wait.h>

static inline int launch_exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* The first failure is the job's. If the job continues without the failed node, a node that exits
 * with 0 has seen the whole job succeed, and its code wins. `before` < 0: no node has exited yet.
 */
static inline int launch_code_of_job(int before, int code, bool go_on)
{
    if (before < 0)
        return code;
    bool keep = go_on ? before == 0 : before != 0;
    return keep ? before : code;
}

#endif
