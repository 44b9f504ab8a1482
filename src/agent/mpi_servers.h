/* MPI programs: the servers (PMI-1 here, PMIx in the helper) by which the ranks of a round find
 * each other, and what their exits mean. */
#ifndef DD_AGENT_MPI_SERVERS_H
#define DD_AGENT_MPI_SERVERS_H

#include "agent/features.h"

extern const struct round_feature mpi_feature;

#endif
