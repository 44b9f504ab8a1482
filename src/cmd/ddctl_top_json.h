/* The state of a job that 'ddctl top' shows, as one JSON object (docs/json.md). Pure. */
#ifndef DD_CMD_DDCTL_TOP_JSON_H
#define DD_CMD_DDCTL_TOP_JSON_H

#include "cmd/ddctl_top_model.h"

/* Append the object and a line end. 0 or -ENOMEM, also if the object exceeds the buffer. */
int top_job_json(const struct top_job *j, struct dd_buf *out);

#endif
