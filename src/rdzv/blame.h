/* Decides whether a worker's failure may be charged to its node. Pure. */
#ifndef DD_RDZV_BLAME_H
#define DD_RDZV_BLAME_H

#include <stdbool.h>

struct report_exit;

/* True if the exit `e` does not show which worker is the cause: a connection to a peer ended, a
 * wait for a peer timed out, or all ranks were idle. why: reason in the report; NULL or "":
 * unknown. */
bool blame_is_remote(const struct report_exit *e, const char *why);

#endif
