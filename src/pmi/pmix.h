/* PMIx for the workers of one node in one round, for Open MPI: the agent's side of the helper
 * ddrun-pmix, which holds libpmix. That brings threads, loses memory and can be a server once in a
 * process: so the helper lives for one round, and dies with its agent. */
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

struct pmix_cfg { /* borrowed during the call; base, log, tmp and shm until free */
    struct event_base *base;
    const struct dd_log *log;
    const char *helper;                 /* path of ddrun-pmix */
    char *const *env;                   /* for the helper */
    const struct dd_scratch *tmp, *shm; /* where the round has its directory; shm: may be none */
    const char *nspace;                 /* names the round, for all its nodes */
    const char *nodes;                  /* their names, a folded host list */
    const int *sizes;                   /* their workers */
    int nnodes, node_rank, local_size, attempt, round;
    /* All nodes' parts are to be put together: pmix_gathered() with this id. Lent for the call. */
    void (*on_gather)(void *arg, uint32_t id, const char *name, const void *part, size_t len);
    void (*on_abort)(void *arg, int local_rank); /* MPI_Abort; the code is in pmix_end */
    void (*on_lost)(void *arg);                  /* the helper has ended by itself */
    void *arg;
};

/* Starts the helper and waits until it serves: some 20 ms. Gives *ret. */
int pmix_new(struct pmix **ret, const struct pmix_cfg *cfg, struct dd_err *err);
/* Adds what this worker needs to find the helper. 0 or -ENOMEM. */
int pmix_env(const struct pmix *p, int local_rank, struct dd_strv *env);
/* The parts, one behind the other; NULL: they cannot be had. */
void pmix_gathered(struct pmix *p, uint32_t id, const void *parts, size_t len);

struct pmix_end {
    bool open;    /* it has called PMIx_Init and not PMIx_Finalize */
    bool aborted; /* it has aborted the job */
    int code;     /* with this */
};
/* What a worker that has ended did: what the helper has told last is read first. */
struct pmix_end pmix_ended(struct pmix *p, int local_rank);

/* Where the ranks of this node share memory, lent; NULL: nowhere of ours. */
const char *pmix_shm(const struct pmix *p);
/* When the workers are gone: ends the helper and removes its files. NULL is fine. */
void pmix_free(struct pmix *p);

#endif
