/* Properties of this machine that a program reads once. */
#ifndef DD_CMD_LOCAL_MACHINE_H
#define DD_CMD_LOCAL_MACHINE_H

#include "alloc/alloc.h"

struct local_machine {
    char hostname[256];   /* from gethostname() */
    struct dd_strv addrs; /* numeric addresses of all interfaces; empty until they are needed */
};

int local_machine_discover(struct local_machine *m, struct dd_err *err);
void local_machine_done(struct local_machine *m);
/* Set the members of *in that describe the machine and this process. *in borrows from *m. */
void local_machine_describe(struct local_machine *m, struct alloc_input *in);
/* Append to *ret the names and addresses by which other nodes may reach this one: its name in `a`
 * at `index` (-1: not in a), or its host name, then some of its addresses. */
int local_machine_addresses(struct local_machine *m, struct dd_strv *ret, const struct alloc *a,
                            int index, struct dd_err *err);

static inline void dd_auto_local_machine(struct local_machine *m)
{
    local_machine_done(m);
}

#endif
