/* What runs in the child of a name look-up. */
#ifndef DD_NET_RESOLVE_CHILD_H
#define DD_NET_RESOLVE_CHILD_H

#include "net/addr.h"
#include "net/resolve.h"

/* One piece of the answer, small enough for one atomic write to the pipe; the same program reads
 * it. */
struct resolve_piece {
    struct net_addr addr; /* len 0: why is the sentence instead */
    char why[220];
};

/* Writes pieces to fd as they come in. For the child alone: it blocks, and starts scontrol. */
void net_resolve_child(int fd, const char *name, enum net_resolve_slurm slurm);

/* The value of NodeAddr in the output of `scontrol show node -o` into out; false: there is none
 * that fits. Pure. */
bool net_resolve_node_addr(const char *text, char *out, size_t size);

#endif
