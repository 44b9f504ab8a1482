/* MPI: the servers (PMI-1 in the agent, PMIx in ddrun-pmix) by which the ranks of a round find each
 * other, and the meaning of exits under MPI. */
#ifndef DD_AGENT_MPI_SERVERS_H
#define DD_AGENT_MPI_SERVERS_H

#include "agent/features.h"

extern const struct round_feature mpi_feature;

#endif
