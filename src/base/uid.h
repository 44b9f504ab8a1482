/* Which uids are this process's own.
 *
 * In a user namespace the kernel reports every uid without a mapping as the overflow uid, usually
 * 65534. A process that itself runs as that uid cannot tell its own sockets and files from those of
 * unmapped users. Src: user_namespaces(7), "Unmapped user and group IDs". */
#ifndef DD_BASE_UID_H
#define DD_BASE_UID_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

struct dd_uid {
    uid_t own;
    bool ambiguous; /* own is also what unmapped uids are reported as */
};

void dd_uid_read(struct dd_uid *ret);
/* Whether a uid that the kernel reported, of a socket, a process or a file, is this process's;
 * never if ambiguous. */
bool dd_uid_is_own(const struct dd_uid *u, uid_t reported);
/* 0, or -EPERM with a sentence if the own uid is ambiguous. */
int dd_uid_check(struct dd_err *err);

/* Whether the content of /proc/self/uid_map maps every uid to itself. */
bool dd_uid_map_is_full(const char *text);

#endif
