/* Which failures are charged to a node. Pure. */
#ifndef DD_RDZV_BLAME_H
#define DD_RDZV_BLAME_H

#include <stdbool.h>

struct report_exit;

/* True if a worker that ended in this way has only noticed the failure of another one: its
 * connection to a peer ended, or it waited too long for a peer. why: what the report says of it;
 * NULL or "": nothing. */
bool blame_is_remote(const struct report_exit *e, const char *why);

#endif
