/* A PMI-1 client of an outer launcher that has started one agent per node (mpiexec -ppn 1 ddrun …).
 * The agents learn their rank and exchange one text each. */
#ifndef DD_PMI_PMI_CLIENT_H
#define DD_PMI_PMI_CLIENT_H

#include "base/err.h"
#include "base/strv.h"

/* Return the number of processes that the outer launcher has started; 0: no such launcher.
 * *ret_rank is the rank of this process. */
int pmi_client_size(char *const *env, int *ret_rank);
/* Publish a text without blanks (PMI_VALUE_MAX) and get the texts of all processes, by rank. Closes
 * the connection to the launcher. Waits at most limit_ms. */
int pmi_client_gather(struct dd_strv *ret, char *const *env, const char *text, unsigned limit_ms,
                      struct dd_err *err);

#endif
