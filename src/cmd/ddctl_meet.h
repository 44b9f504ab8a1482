/* Address and interfaces of the workers for ddctl env, determined from this node alone: there are
 * no connections to other nodes. */
#ifndef DD_CMD_DDCTL_MEET_H
#define DD_CMD_DDCTL_MEET_H

#include "net/addr.h"
#include "rdzv/task_layout.h"

/* Find an address of the first node for the other nodes: `given` if not NULL; loopback for a single
 * node; a numeric address if the name resolves to one, or if this node is the first one and has
 * one; otherwise the name. The caller owns *ret. */
int meet_find_addr(char **ret, const struct task_layout *p, const struct alloc *a,
                   const char *given, struct dd_err *err);

/* Find the interfaces that the workers of this node use to reach the plan's first node. */
void meet_find_ifaces(struct net_worker_ifaces *ret, const struct plan *p);

#endif
