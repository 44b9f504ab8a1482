/* The uids of this process.
 *
 * In a user namespace the kernel reports every unmapped uid as the overflow uid, usually 65534. A
 * process that itself runs as that uid cannot distinguish its own sockets and files from those of
 * unmapped users. Src: user_namespaces(7), "Unmapped user and group IDs". */
#ifndef DD_BASE_UID_H
#define DD_BASE_UID_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct dd_uid {
    uid_t own;
    bool ambiguous; /* own is also the overflow uid */
};

void dd_uid_read(struct dd_uid *ret);
/* True if a uid that the kernel reported for a socket, process or file is this process's; always
 * false if ambiguous. */
bool dd_uid_is_own(const struct dd_uid *u, uid_t reported);
/* Return 0, or -EPERM with a message if this process's uid is ambiguous. */
int dd_uid_check(struct dd_err *err);

/* True if the content of /proc/self/uid_map maps every uid to itself. */
bool dd_uid_map_is_full(const char *text);

#endif
