/* What a program reads once about the machine it runs on. */
#ifndef DD_CMD_LOCAL_MACHINE_H
#define DD_CMD_LOCAL_MACHINE_H

#include "alloc/alloc.h"

struct local_machine {
    char hostname[256];   /* from gethostname() */
    struct dd_strv addrs; /* numeric addresses of all interfaces */
};

int local_machine_discover(struct local_machine *m, struct dd_err *err);
void local_machine_done(struct local_machine *m);
/* Sets the fields of *in that describe the machine and this process; lent. */
void local_machine_describe(const struct local_machine *m, struct alloc_input *in);
/* How other nodes may reach this one, which is node `index` of a (-1: none of them): its name in a,
 * or its own, then some of its addresses. Appends to *ret. */
int local_machine_addresses(const struct local_machine *m, struct dd_strv *ret,
                            const struct alloc *a, int index, struct dd_err *err);

static inline void dd_auto_local_machine(struct local_machine *m)
{
    local_machine_done(m);
}

#endif
