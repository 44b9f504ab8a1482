/* Writes the output of 'ddctl timeline': the durations of a job's phases, from the file of
 * --timeline. Pure. */
#ifndef DD_REPORT_TIMELINE_SUMMARY_H
#define DD_REPORT_TIMELINE_SUMMARY_H

#include "base/buf.h"
#include "base/err.h"

/* Append the summary. The array in text need not be complete: ddrun may have been killed. -EINVAL
 * with a message: text is not a timeline of ddrun. */
int timeline_summary(struct dd_buf *out, const char *text, size_t n, struct dd_err *err);
/* Append the summary as a JSON object; docs/json.md describes the members. */
int timeline_summary_json(struct dd_buf *out, const char *text, size_t n, struct dd_err *err);

#endif
