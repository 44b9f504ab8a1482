/* Parses stacks of native code that eu-stack (elfutils) and gdb print. Pure. */
#ifndef DD_REPORT_NATIVE_STACK_H
#define DD_REPORT_NATIVE_STACK_H

#include "base/buf.h"

/* Append the frames of the first thread in the output of `eu-stack -1 -m -s` or of gdb's `bt`, in
 * the form of report/stacks.h. The file of a frame is the source file; it is the module if the
 * source file is unknown, or the frame is of a library. -ENODATA: there is no frame; or -ENOMEM,
 * -EMSGSIZE. */
int native_stack_parse(const char *text, struct dd_buf *frames);
/* Append the native frames that the innermost Python frame has called, marked by
 * STACK_FRAME_NATIVE, and then the Python frames. If no native frame is the interpreter's, append
 * only the Python frames. */
int native_stack_merge(const char *native, const char *python, struct dd_buf *frames);
/* Append why the tool has printed no frame, as "gdb: …". */
int native_stack_reason(const char *tool, const char *text, struct dd_buf *reason);

#endif
