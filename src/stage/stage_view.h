/* Shows the copies and images at the original paths, to the workers of one node only: in a mount
 * namespace, with a user namespace unless the user is root. All workers of the node share both:
 * processes in different user namespaces cannot read each other's memory, as MPI libraries do. */
#ifndef DD_STAGE_STAGE_VIEW_H
#define DD_STAGE_STAGE_VIEW_H

#include "base/err.h"

/* Make the namespaces, and check that they show the copies and the same root directory. pairs:
 * source, copy …, NULL-terminated; a copy of an image is mounted, and served until *ret_servers is
 * closed or the caller exits. ret_servers: NULL if there is no image. Returns the number of
 * descriptors in fds: 1 (mounts) or 2 (users, mounts). */
int stage_view_make(int fds[2], char *const *pairs, int *ret_servers, struct dd_err *err);
/* Enter the namespaces, and return to the working directory. Only for a process with one thread. */
int stage_view_enter(const int *fds, int n, struct dd_err *err);

#endif
