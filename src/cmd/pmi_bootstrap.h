/* The other agents of a job that an MPI launcher (mpiexec) has started, where nothing else names
 * them. */
#ifndef DD_CMD_PMI_BOOTSTRAP_H
#define DD_CMD_PMI_BOOTSTRAP_H

#include "alloc/alloc.h"

struct pmi_bootstrap {
    struct dd_strv texts; /* what peers lends */
    struct alloc_peers peers;
};

/* 1: *ret is filled, for in->peers; 0: there are none; or < 0 with a sentence. */
int pmi_bootstrap_peers(struct pmi_bootstrap *ret, const struct alloc_input *in, unsigned limit_ms,
                        struct dd_err *err);

#endif
