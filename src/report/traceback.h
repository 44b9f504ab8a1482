/* Parses the traceback that Python prints when an exception ends a program. Pure. */
#ifndef DD_REPORT_TRACEBACK_H
#define DD_REPORT_TRACEBACK_H

#include "base/buf.h"

#include <stdbool.h>

/* Append the frames of the last traceback in text, in the form of report/stacks.h. Outer frames may
 * be missing, as at the start of a worker's last lines. Outer frames that do not fit are omitted.
 * -ENODATA: there is no traceback, or the exception was raised while another one was handled, so
 * that its frames do not show where the program had been; -ENOMEM. */
int traceback_frames(const char *text, struct dd_buf *frames);

/* As traceback_frames(), if a worker's last lines show that it only noticed the loss or delay of
 * another rank: the frames show where it waited. Otherwise -ENODATA. */
int traceback_of_waiting(const char *tail, struct dd_buf *frames);

/* True if these frames show that Python prints a traceback: the program has ended. */
bool traceback_is_printed(const char *frames);

#endif
