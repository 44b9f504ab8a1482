/* Code that runs in the child of a name look-up. */
#ifndef DD_NET_RESOLVE_CHILD_H
#define DD_NET_RESOLVE_CHILD_H

#include "net/addr.h"
#include "net/resolve.h"

/* One address of the answer, or its error message, small enough for one atomic write to the pipe.
 * Writer and reader are the same program. */
struct resolve_piece {
    struct net_addr addr; /* len 0: why contains an error message */
    char why[220];
};

/* Write each address to fd as it arrives, or an error message if there is none. Only for the child:
 * it blocks, and may start scontrol. */
void net_resolve_child(int fd, const char *name, enum net_resolve_slurm slurm);

/* Copy the value of NodeAddr from the output of `scontrol show node -o` to out; false if it is
 * missing or too long. Pure. */
bool net_resolve_node_addr(const char *text, char *out, size_t size);

#endif
