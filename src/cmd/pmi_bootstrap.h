/* Finds the other agents of a job that an MPI launcher (mpiexec) has started, by PMI, if there is
 * no other source of their names. */
#ifndef DD_CMD_PMI_BOOTSTRAP_H
#define DD_CMD_PMI_BOOTSTRAP_H

#include "alloc/alloc.h"

struct pmi_bootstrap {
    struct dd_strv texts; /* owns the texts that peers borrows */
    struct alloc_peers peers;
};

/* Return 1 with *ret filled for in->peers; 0 if there are no peers, or if another source names
 * them; < 0 with a message. */
int pmi_bootstrap_peers(struct pmi_bootstrap *ret, const struct alloc_input *in, unsigned limit_ms,
                        struct dd_err *err);

#endif
