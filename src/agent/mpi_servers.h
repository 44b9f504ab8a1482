/* MPI: the servers (PMI-1 in the agent, PMIx in ddrun-pmix) by which the ranks of a round find each
 * other, and the meaning of exits under MPI. */
#ifndef DD_AGENT_MPI_SERVERS_H
#define DD_AGENT_MPI_SERVERS_H

#include "agent/features.h"

struct dd_scratch; /* base/scratch.h */

enum { MPI_SERVERS_PMI1 = 1, MPI_SERVERS_PMIX = 2 };

struct mpi_servers_cfg {
    int protocols;                      /* bits of MPI_SERVERS_* */
    const char *pmix_helper;            /* with MPI_SERVERS_PMIX: path of ddrun-pmix */
    const struct dd_scratch *tmp, *shm; /* private directories, whose path may be NULL */
};

/* True while a worker of this node is between MPI_Init and MPI_Finalize. */
bool mpi_servers_have_ranks(const struct round *r);

extern const struct round_feature mpi_feature;

#endif
