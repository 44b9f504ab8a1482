/* The PMI-1 server of one node for one round: each worker has one end of a socket pair, by which it
 * finds its rank, tells the others its addresses (put, get) and waits for them (barrier). For
 * MPICH, MVAPICH, Intel MPI. */
#ifndef DD_PMI_PMI1_H
#define DD_PMI_PMI1_H

#include "base/err.h"
#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>

struct event_base;
struct pmi1;

struct pmi1_cfg { /* borrowed during the call; log, base and refusal until free */
    struct event_base *base;
    const struct dd_log *log;
    const char *refusal; /* NULL, or why nobody is served */
    const char *kvsname; /* other rounds have others */
    int first_rank, local_size, world_size;
    const int *sizes; /* workers of each node, for PMI_process_mapping */
    int nnodes;
    /* All workers of this node are in the seq-th barrier (from 1 on): the other nodes are to get
     * this part, which is lent for the call; then pmi1_take() what they have, and pmi1_release(),
     * which may be called in the call. */
    void (*on_barrier)(void *arg, unsigned seq, const void *part, size_t len);
    void (*on_abort)(void *arg, int local_rank); /* MPI_Abort; the code is in pmi1_end */
    void *arg;
};

int pmi1_new(struct pmi1 **ret, const struct pmi1_cfg *cfg, struct dd_err *err);
/* The end that the worker inherits, as PMI_FD. Lent until pmi1_started(). */
int pmi1_fd(const struct pmi1 *s, int local_rank);
void pmi1_started(struct pmi1 *s); /* the workers have theirs: those here are closed */

int pmi1_take(struct pmi1 *s, const void *part, size_t len, struct dd_err *err);
void pmi1_release(struct pmi1 *s);

struct pmi1_end {
    bool open;    /* it has called MPI_Init and not MPI_Finalize */
    bool aborted; /* it has called MPI_Abort */
    int code;     /* with this */
};
/* What a worker that has ended did: what it wrote last is read first. */
struct pmi1_end pmi1_ended(struct pmi1 *s, int local_rank);

void pmi1_free(struct pmi1 *s);

#endif
