/* The text of an event, for the commands that show events. */
#ifndef DD_CMD_DDCTL_EVENTS_H
#define DD_CMD_DDCTL_EVENTS_H

#include "base/buf.h"

#include <jansson.h>

/* Append one line without the time and without a newline. 0, -ENOMEM or -EMSGSIZE. */
int event_text(struct dd_buf *out, const json_t *event);

#endif
