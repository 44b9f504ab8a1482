/* Converts the metrics of a job from OpenMetrics text to JSON. Pure. */
#ifndef DD_REPORT_METRICS_JSON_H
#define DD_REPORT_METRICS_JSON_H

#include "base/buf.h"

/* Append the JSON object that docs/json.md describes. text: what metrics_text() writes. Return 0,
 * -EINVAL if a line is malformed, or -ENOMEM. */
int metrics_json(const char *text, struct dd_buf *out);

#endif
