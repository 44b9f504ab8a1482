/* Reads the JSON report that 'ddrun --report=FILE' has written, to print it again. Pure. */
#ifndef DD_REPORT_REPORT_READ_H
#define DD_REPORT_REPORT_READ_H

#include "base/err.h"
#include "report/report.h"

enum { REPORT_FILE_MAX = 4 << 20 };

/* Append the report in text[0..n): the job, its restarts, and what ddrun printed at its end. The
 * file may be anything: all texts are sanitized for a terminal. -EINVAL: not a report, or one of
 * a later version; -ENOMEM. */
int report_read(const char *text, size_t n, struct dd_buf *out, struct dd_err *err);

#endif
