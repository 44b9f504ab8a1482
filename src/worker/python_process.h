/* Finds the process of a worker that runs Python, and py-spy, which reads the frames of that
 * process. */
#ifndef DD_WORKER_PYTHON_PROCESS_H
#define DD_WORKER_PYTHON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Return the worker, or its first descendant that runs Python: a shell script may start it. A
 * process whose program this process may not read counts as Python. 0: there is none. */
pid_t python_process_find(pid_t worker);
/* True if the worker, or its first descendant, is a client of Podman: the program in the container
 * is a child of Podman's monitor. */
bool python_process_is_in_podman(pid_t worker);
/* Write to v the pids of the children of `python` that run Python, the oldest first, then those of
 * grandchildren, such as the workers of multiprocessing's fork server; at most `most`. Return their
 * number. */
size_t python_process_children(pid_t python, pid_t *v, size_t most);
/* Find py-spy: next to `program` (ignored unless absolute; NULL: unknown), in the virtual
 * environment of env, next to the program of process `python`, or in PATH of env. `wanted`: use
 * this program instead; NULL: none. The caller owns *ret. 0 or -errno. */
int python_process_py_spy(char **ret, pid_t python, const char *program, char *const *env,
                          const char *wanted);

#endif
