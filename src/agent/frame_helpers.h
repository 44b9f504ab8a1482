/* Reads the Python frames of many processes in a few children of the agent, since reading blocks
 * while a page of the process cannot be read. A child that blocks is killed, and another one goes
 * on with the next process. */
#ifndef DD_AGENT_FRAME_HELPERS_H
#define DD_AGENT_FRAME_HELPERS_H

#include "agent/round.h"

#include <stdbool.h>

struct frame_helpers;

/* Called at most once for each process, from the loop or from frame_helpers_collect(). rc 0: text
 * has the frames in the form of report/stacks.h. Otherwise text is the reason, and rc an error of
 * py_process_read(), or -EIO: reading blocked, or the child failed. */
typedef void frame_helpers_result_f(void *arg, size_t index, int rc, const char *text);

/* A process to read. */
struct frame_process {
    pid_t pid;
    bool permits; /* the process has allowed the agent's children to read it (PR_SET_PTRACER) */
};

struct frame_helpers_spec {
    const struct round *round;
    const struct frame_process *v; /* read in this order, copied */
    size_t n;
    size_t most; /* maximum number of children */
    unsigned limit_ms;
    frame_helpers_result_f *result;
    void (*end)(void *arg); /* no child is left; called from the loop; may free the helpers */
    void *arg;
};

/* On success, end() will be called. The caller owns *ret. */
int frame_helpers_start(struct frame_helpers **ret, const struct frame_helpers_spec *spec);
/* Deliver the results that have been printed so far. */
void frame_helpers_collect(struct frame_helpers *h);
/* Deliver no further result. end() is called when the children have been killed. */
void frame_helpers_stop(struct frame_helpers *h);
/* Kills the children, without callbacks. NULL is fine. */
void frame_helpers_free(struct frame_helpers *h);

#endif
