/* Reads the Python frames of another process through /proc. It may block as long as a page of the
 * process cannot be read, for example while its file server does not answer: call it in a child
 * that can be killed. */
#ifndef DD_PYSTACK_PY_PROCESS_H
#define DD_PYSTACK_PY_PROCESS_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* Return kernel.yama.ptrace_scope: 1: only the ancestors of a process may read its memory, and
 * those to which it has allowed that; 2: only with CAP_SYS_PTRACE; 3: nobody. 0: there is no such
 * limit. */
int py_process_scope(void);
/* Open the memory of a process, for a child that is no ancestor of it. A descriptor, or -errno. */
int py_process_open(pid_t pid);
/* As py_stack_read(). mem: from py_process_open(), borrowed; negative: the process is opened where
 * needed. -EACCES or -EPERM: not permitted. */
int py_process_read(pid_t pid, int mem, struct dd_buf *out, struct dd_err *err);

#endif
