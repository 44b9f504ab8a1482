/* Reads the Python frames of another process through /proc. It may block as long as a page of the
 * process cannot be read, for example while its file server does not answer: call it in a child
 * that can be killed. */
#ifndef DD_PYSTACK_PY_PROCESS_H
#define DD_PYSTACK_PY_PROCESS_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* Return kernel.yama.ptrace_scope, which limits who may read the memory of a process. 0: no limit;
 * 1: its ancestors, and the process that it has chosen (PR_SET_PTRACER); 2: processes with
 * CAP_SYS_PTRACE; 3: no process. */
int py_process_scope(void);
/* Open the memory of a process. Return the descriptor, or -errno. A child of the caller that may
 * not open the memory itself can inherit the descriptor. */
int py_process_open(pid_t pid);
/* As py_stack_read(). mem: from py_process_open(), borrowed; negative: the memory is opened where
 * needed. -EACCES or -EPERM: reading is not permitted. */
int py_process_read(pid_t pid, int mem, struct dd_buf *out, struct dd_err *err);

#endif
