/* The event loop of 'ddctl top': keys, signals and the size of the terminal, and child processes
 * that ask the job, so that the screen never waits for a node. */
#ifndef DD_CMD_DDCTL_TOP_LOOP_H
#define DD_CMD_DDCTL_TOP_LOOP_H

#include "base/err.h"
#include "cmd/ddctl_top_view.h"

#include <stdint.h>

struct top_loop_cfg {
    const char *job; /* the job's whole id */
    uint64_t interval_ns;
    /* Print a sample to stdout, or a message; returns the exit status. Called in a child. */
    int (*sample)(void *arg);
    /* Print the last lines of a rank to stdout, or a message; returns the exit status. Called in a
     * child. */
    int (*log)(void *arg, int rank);
    void *arg;
};

/* Show the job until the user quits; takes first, the first sample. Return 0, a signal that ended
 * the loop, or -errno with a message. */
int top_loop_run(const struct top_loop_cfg *cfg, struct top_job *first, struct dd_err *err);

#endif
