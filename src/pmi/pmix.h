/* PMIx for the workers of one node in one round, for Open MPI: the agent's side of the helper
 * ddrun-pmix, which contains libpmix. libpmix starts threads, leaks memory and can be a server only
 * once per process, so the helper runs for one round and exits with its agent. */
#ifndef DD_PMI_PMIX_H
#define DD_PMI_PMIX_H

#include "base/err.h"
#include "base/log.h"
#include "base/scratch.h"
#include "base/strv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct pmix;

struct pmix_cfg { /* borrowed during the call; base, log, tmp and shm until pmix_free() */
    struct event_base *base;
    const struct dd_log *log;
    const char *helper;                 /* path of ddrun-pmix */
    char *const *env;                   /* environment of the helper */
    const struct dd_scratch *tmp, *shm; /* parents of the round's directories; shm->path NULL: no
                                           directory for shared memory */
    const char *nspace;                 /* identifies the round on all nodes */
    const char *nodes;                  /* names of the nodes, as a folded host list */
    const int *sizes;                   /* number of workers per node */
    int nnodes, node_rank, local_size, attempt, round;
    /* Called to exchange parts between all nodes; the caller then calls pmix_gathered() with this
     * id. name and part are valid during the call. */
    void (*on_gather)(void *arg, uint32_t id, const char *name, const void *part, size_t len);
    void (*on_abort)(void *arg, int local_rank); /* MPI_Abort was called; the code is in pmix_end */
    void (*on_lost)(void *arg);                  /* the helper has exited unexpectedly */
    void *arg;
};

/* Start the helper and wait until it serves: about 20 ms. */
int pmix_new(struct pmix **ret, const struct pmix_cfg *cfg, struct dd_err *err);
/* Add the variables by which this worker finds the helper. 0 or -ENOMEM. */
int pmix_env(const struct pmix *p, int local_rank, struct dd_strv *env);
/* Pass the concatenated parts to the helper; NULL: the exchange failed. */
void pmix_gathered(struct pmix *p, uint32_t id, const void *parts, size_t len);

struct pmix_end {
    bool open;    /* the worker has called PMIx_Init but not PMIx_Finalize */
    bool aborted; /* the worker has called PMIx_Abort */
    int code;     /* argument of PMIx_Abort */
};
/* Return the state of a worker that has exited, after reading the helper's remaining messages. */
struct pmix_end pmix_ended(struct pmix *p, int local_rank);

/* True while a worker has called PMIx_Init but not PMIx_Finalize. */
bool pmix_has_ranks(const struct pmix *p);

/* Return the directory for the ranks' shared memory (borrowed); NULL: none. */
const char *pmix_shm(const struct pmix *p);
/* Stop the helper and remove its directories, after the workers have ended. NULL does nothing. */
void pmix_free(struct pmix *p);

#endif
