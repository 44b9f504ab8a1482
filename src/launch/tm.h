/* What PBS' task manager library offers, as it is known to those who load it at run time, and which
 * of the job's nodes is which to it. Pure.
 *
 * Src: tm(3B) of OpenPBS and Torque; OpenPBS 23.06.06, measured. libpbs.so.0 and libtorque.so.2
 * have the same calls. */
#ifndef DD_LAUNCH_TM_H
#define DD_LAUNCH_TM_H

#include <stddef.h>

enum { TM_NO_EVENT = 0, TM_NODES_MAX = 1 << 20 };

struct tm_roots { /* tm_init() fills it; nothing in it is of use to us */
    unsigned me, parent;
    int nnodes, ntasks, pool;
    unsigned *tasks;
};

/* All return 0 or one of the numbers below. */
struct tm_calls {
    int (*init)(void *unused, struct tm_roots *roots);
    int (*nodeinfo)(int **ids,
                    int *n); /* an id for each line of the node file; gives *ids: free() */
    int (*spawn)(int argc, char **argv, char **env, int node, unsigned *task, int *event);
    int (*obit)(unsigned task, int *status, int *event);
    int (*kill)(unsigned task, int sig, int *event);
    int (*poll)(int none, int *event, int wait, int *error);
    int (*finalize)(void);
};

/* What an error number means, as the end of a sentence. */
const char *tm_words(int error);

/* The number of the first line, counted without empty ones, that names this host: by its whole
 * name, else by what is before the first dot; -1: none does. *lines gets how many there are. */
int tm_line_of(const char *text, size_t len, const char *host, int *lines);

/* What a process ends with whose task ended so: its exit code, 128 + a signal, or 255 for what is
 * neither. */
int tm_exit_code(int status);

#endif
