/* Parses the output of `py-spy dump --json`. Pure. Src: py-spy 0.4.1. */
#ifndef DD_REPORT_PY_SPY_H
#define DD_REPORT_PY_SPY_H

#include "base/buf.h"

#include <stddef.h>

/* Append the frames of the main thread of the process in the form of report/stacks.h. -EPROTO: the
 * text is not such output; -ENODATA: the main thread has no frame. */
int py_spy_parse(const char *text, size_t len, int pid, struct dd_buf *frames);
/* Append the reason why py-spy has failed, as "py-spy: …". text: the output of py-spy. */
int py_spy_reason(const char *text, struct dd_buf *reason);

#endif
