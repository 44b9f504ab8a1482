/* ddrun that was started on this node by another one's. */
#ifndef DD_CMD_DDRUN_JOIN_H
#define DD_CMD_DDRUN_JOIN_H

#include "launch/bootstrap_payload.h"

/* Fetches its package, makes folder, limits and environment those of the starting shell, and runs
 * node(arg, package, index), which has the arguments, in a child. Its exit code. */
struct joiner {
    int (*node)(void *arg, struct bootstrap_payload *p, int index);
    void *arg;
};
int launch_join(const char *ticket, const struct joiner *joiner);

#endif
