/* Declarations of the task manager library of PBS (TM) for loading it at run time, texts for its
 * errors, and the number of a node in the node file. Pure.
 *
 * Src: tm(3B) of OpenPBS and Torque; OpenPBS 23.06.06, measured. libpbs.so.0 and libtorque.so.2
 * have the same calls. */
#ifndef DD_LAUNCH_TM_H
#define DD_LAUNCH_TM_H

#include <stddef.h>

enum { TM_NO_EVENT = 0, TM_NODES_MAX = 1 << 20 };

struct tm_roots { /* filled by tm_init(), not used by ddrun */
    unsigned me, parent;
    int nnodes, ntasks, pool;
    unsigned *tasks;
};

/* Each returns 0 or an error number, for tm_words(). */
struct tm_calls {
    int (*init)(void *unused, struct tm_roots *roots);
    int (*nodeinfo)(int **ids,
                    int *n); /* allocates *ids (free()), one for each line of the node file */
    int (*spawn)(int argc, char **argv, char **env, int node, unsigned *task, int *event);
    int (*obit)(unsigned task, int *status, int *event);
    int (*kill)(unsigned task, int sig, int *event);
    int (*poll)(int none, int *event, int wait, int *error);
    int (*finalize)(void);
};

/* Describe an error number, as the end of a message. */
const char *tm_words(int error);

/* Return the index, from 0, of the first line that names this host: by its whole name, or else by
 * its name up to the first dot; -1: none. *lines becomes the number of lines. Empty lines do not
 * count. */
int tm_line_of(const char *text, size_t len, const char *host, int *lines);

/* Return the exit code for the status of a task: its own, 128 + a signal, or 255 for other values.
 */
int tm_exit_code(int status);

#endif
