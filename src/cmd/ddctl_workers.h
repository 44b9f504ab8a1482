/* The request "workers": what the workers of a running job use and print. */
#ifndef DD_CMD_DDCTL_WORKERS_H
#define DD_CMD_DDCTL_WORKERS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* Ask the agents of these ranks, "0-3,8" or "" for all. all_lines: return all kept lines of output
 * instead of the last one; `ranks` is then a single rank. NULL with a message: the request failed,
 * no worker runs, or the agents have an earlier version of ddrun, which cannot answer. The caller
 * owns the reference. */
json_t *workers_ask(const char *job, const char *ranks, bool all_lines, struct dd_err *err);

/* Print the last lines of a rank to stdout, or a sentence why there are none. Return the exit
 * status of a child that has called this. */
int workers_print_lines(const char *job, int rank);

#endif
