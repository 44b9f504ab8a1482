/* A PMI-1 client of the launcher that has started one agent on each node (mpiexec -ppn 1 ddrun …):
 * the agents learn their number and exchange one text each. */
#ifndef DD_PMI_PMI_CLIENT_H
#define DD_PMI_PMI_CLIENT_H

#include "base/err.h"
#include "base/strv.h"

/* How many processes it has started; 0: there is none that is spoken with. *ret_rank is which of
 * them we are. */
int pmi_client_size(char *const *env, int *ret_rank);
/* Each says a text without blanks (PMI_VALUE_MAX), and hears those of all, by rank. The launcher's
 * connection is closed in the end. Waits at most limit_ms. */
int pmi_client_gather(struct dd_strv *ret, char *const *env, const char *text, unsigned limit_ms,
                      struct dd_err *err);

#endif
