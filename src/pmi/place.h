/* Where Open MPI and libpmix may put files: a folder among temporary files, and one in /dev/shm for what the ranks of a
 * node share. Whoever is there at the end removes them: the agent, the helper, the guardian. */
#ifndef DD_PMI_PLACE_H
#define DD_PMI_PLACE_H

#include "base/err.h"

struct pmi_place {
    char *tmp;
    char *shm; /* NULL: there is no /dev/shm */
};

/* Names of their own; nothing is made. tmp_dir NULL: /tmp. 0, or < 0 with a sentence. */
int pmi_place_new(struct pmi_place *ret, const char *tmp_dir, struct dd_err *err);
int pmi_place_make(const struct pmi_place *p, struct dd_err *err);
int pmi_place_remove(const struct pmi_place *p); /* 0, or -errno: something is left */
/* Folders of dead jobs of this user, whose agent, helper and guardian were killed at once, beside p. */
void pmi_place_sweep(const struct pmi_place *p);
void pmi_place_done(struct pmi_place *p);        /* forgets the names */

#endif
