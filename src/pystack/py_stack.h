/* Reads the Python frames of a running process. Supports CPython 3.8 to 3.15 with the
 * global interpreter lock, on machines with 64-bit pointers and little-endian numbers. Pure.
 *
 * The process is not stopped. A change is detected if a pointer no longer refers to an object of
 * the expected type, or if the innermost frame differs afterwards; then the stack is read again, at
 * most a few times. */
#ifndef DD_PYSTACK_PY_STACK_H
#define DD_PYSTACK_PY_STACK_H

#include "base/buf.h"
#include "base/err.h"
#include "pystack/py_memory.h"

struct py_process {
    const void *auxv; /* content of /proc/PID/auxv, borrowed */
    size_t auxv_size;
    int pid;
};

/* Append the frames of the main thread in the form of report/stacks.h. If no thread has the id pid
 * (another PID namespace), use the oldest thread. On failure with a message, out may have
 * grown: -ENODATA: the thread has no frame; -ENOTSUP: no CPython of a known version; -ESRCH: the
 * process has ended; -EAGAIN: its memory changes too quickly, or makes no sense. */
int py_stack_read(struct py_memory *m, const struct py_process *p, struct dd_buf *out,
                  struct dd_err *err);

#endif
