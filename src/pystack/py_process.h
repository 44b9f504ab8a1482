/* Reads the Python frames of another process through /proc. It may block as long as a page of the
 * process cannot be read, for example while its file server does not answer: call it in a child
 * that can be killed. */
#ifndef DD_PYSTACK_PY_PROCESS_H
#define DD_PYSTACK_PY_PROCESS_H

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

/* As py_stack_read(). -EACCES or -EPERM: not permitted. */
int py_process_read(pid_t pid, struct dd_buf *out, struct dd_err *err);

#endif
