/* Which failures are charged to a node. Pure. */
#ifndef DD_RDZV_BLAME_H
#define DD_RDZV_BLAME_H

#include <stdbool.h>

/* True if a worker that ended in this way has only noticed the failure of another one: its
 * connection to a peer ended, or it waited too long for a peer. signal 0: none. text: what the
 * worker reported; NULL or "": nothing. */
bool blame_is_remote(int signal, const char *text);

#endif
