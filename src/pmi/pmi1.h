/* The PMI-1 server of one node for one round. Each worker has one end of a socket pair, over which
 * it learns its rank, publishes and looks up addresses (put, get) and synchronizes (barrier). For
 * MPICH, MVAPICH and Intel MPI. */
#ifndef DD_PMI_PMI1_H
#define DD_PMI_PMI1_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct pmi1;

struct pmi1_cfg { /* borrowed during the call; log, base and refusal until pmi1_free() */
    struct event_base *base;
    const struct dd_log *log;
    const char *refusal; /* reason for refusing all requests; NULL: serve */
    const char *kvsname; /* differs between rounds */
    int first_rank, local_size, world_size;
    const int *sizes; /* workers of each node, for PMI_process_mapping */
    int nnodes;
    /* Called when all workers of this node are in the seq-th barrier (from 1 on). The caller sends
     * `part`, valid during the call, to the other nodes, calls pmi1_take() with their parts, then
     * pmi1_release(), possibly within this call. */
    void (*on_barrier)(void *arg, unsigned seq, const void *part, size_t len);
    void (*on_abort)(void *arg, int local_rank); /* MPI_Abort was called; the code is in pmi1_end */
    void *arg;
};

int pmi1_new(struct pmi1 **ret, const struct pmi1_cfg *cfg, struct dd_err *err);
/* Return the end that the worker inherits as PMI_FD, valid until pmi1_started(). */
int pmi1_fd(const struct pmi1 *s, int local_rank);
void pmi1_started(struct pmi1 *s); /* closes the workers' ends after they have inherited them */

/* Store the part of another node. 0, or a negative errno with a message. */
int pmi1_take(struct pmi1 *s, const void *part, size_t len, struct dd_err *err);
void pmi1_release(struct pmi1 *s); /* ends the barrier of the workers */

struct pmi1_end {
    bool open;    /* the worker has called MPI_Init but not MPI_Finalize */
    bool aborted; /* the worker has called MPI_Abort */
    int code;     /* argument of MPI_Abort */
};
/* Return the state of a worker that has exited, after reading its remaining requests. */
struct pmi1_end pmi1_ended(struct pmi1 *s, int local_rank);

/* True while a worker has called MPI_Init but not MPI_Finalize. */
bool pmi1_has_ranks(const struct pmi1 *s);

void pmi1_free(struct pmi1 *s);

#endif
