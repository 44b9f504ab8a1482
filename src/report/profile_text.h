/* Writes the store's profile as tables for users: the operations, the sizes of the messages, and
 * the most frequent keys. */
#ifndef DD_REPORT_PROFILE_TEXT_H
#define DD_REPORT_PROFILE_TEXT_H

#include "base/buf.h"

struct json_t;

/* Append the tables. o: the answer to the request "profile" (docs/protocol/control-1.md). 0,
 * -ENOMEM or -EMSGSIZE. */
int profile_text(const struct json_t *o, struct dd_buf *out);

#endif
