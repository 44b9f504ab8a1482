/* The store's profile as a table for people: a flat profile of the operations, the sizes of the
 * messages, the hottest keys. */
#ifndef DD_REPORT_PROFILE_TEXT_H
#define DD_REPORT_PROFILE_TEXT_H

#include "base/buf.h"

struct json_t;

/* o: the answer to the request "profile", docs/protocol/control-1.md. 0, -ENOMEM or -EMSGSIZE. */
int profile_text(const struct json_t *o, struct dd_buf *out);

#endif
