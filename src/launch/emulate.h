/* Simulated nodes: several agents on this machine, each with its own loopback address. They run the
 * same code as real nodes. */
#ifndef DD_LAUNCH_EMULATE_H
#define DD_LAUNCH_EMULATE_H

#include "alloc/alloc.h"
#include "base/log.h"

enum { EMULATE_MAX = 1024 };

/* Properties of a simulated job, common to all nodes. */
struct emulate {
    int nnodes;
    uint64_t random;     /* determines the job's name and the addresses */
    uint64_t secret[2];  /* 128 random bits */
    const char *rdzv_id; /* --rdzv-id, which names the run; NULL: not given */
    bool go_on;          /* the other nodes may continue without a failed one */
};

/* Make the allocation of one simulated node in *ret. */
int emulate_alloc(struct alloc **ret, const struct emulate *e, int index, struct dd_err *err);
/* Write the node's loopback address, "127.x.y.z". */
void emulate_addr(const struct emulate *e, int index, char out[32]);

/* Run node(arg, index) in one process per index, forward signals, and wait for all. When one fails
 * or the leader exits, stop the others with SIGTERM, unless they may continue; after exit code 2
 * always. Return the first exit code that is not 0, otherwise 0. If nodes may continue: 0 if any
 * node has exited with 0, otherwise the last code. Signals remain blocked: one that comes after the
 * end of the job must not replace its exit code. */
int emulate_run(const struct emulate *e, int (*node)(void *arg, int index), void *arg,
                const struct dd_log *log);

#endif
