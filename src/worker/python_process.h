/* Finds the process of a worker that runs Python, and py-spy, which reads the frames of that
 * process. */
#ifndef DD_WORKER_PYTHON_PROCESS_H
#define DD_WORKER_PYTHON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Return the first process that runs Python among the worker, its first child, the first child of
 * that one and so on, four processes in all: a shell script may start Python. A process whose
 * program cannot be read for lack of permission counts as Python. 0: there is none. */
pid_t python_process_find(pid_t worker);
/* True if one of the processes that python_process_find() examines is a client of Podman. The
 * program in the container is not its descendant, but a child of Podman's monitor. */
bool python_process_is_in_podman(pid_t worker);
/* Write to v the pids of the children of `python` that run Python, the oldest first, then those of
 * grandchildren by the first 16 children, such as the workers of multiprocessing's fork server; at
 * most `most`. Return their number. */
size_t python_process_children(pid_t python, pid_t *v, size_t most);
/* Find py-spy: next to `program` (ignored unless absolute; NULL: unknown), in the virtual
 * environment of env, next to the program of process `python`, or in PATH of env. `wanted`: use
 * this program instead; NULL: none. The caller owns *ret. 0 or -errno. */
int python_process_py_spy(char **ret, pid_t python, const char *program, char *const *env,
                          const char *wanted);

#endif
