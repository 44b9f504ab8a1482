/* Simulated nodes: several agents on this machine, each with a loopback address of its own, through
 * exactly the code that runs on real nodes. */
#ifndef DD_LAUNCH_EMULATE_H
#define DD_LAUNCH_EMULATE_H

#include "alloc/alloc.h"
#include "base/log.h"

enum { EMULATE_MAX = 1024 };

/* What all nodes of one simulated job share; pure once random is given. */
struct emulate {
    int nnodes;
    uint64_t random; /* makes job name, addresses and secret */
    uint64_t secret[2];
    bool go_on; /* the others may go on without a node that has failed */
};

/* The allocation of one simulated node. Gives *ret. */
int emulate_alloc(struct alloc **ret, const struct emulate *e, int index, struct dd_err *err);
/* Its loopback address, "127.x.y.z". */
void emulate_addr(const struct emulate *e, int index, char out[32]);

/* Runs node(arg, index) in a process of its own for each index, passes signals on, and waits for
 * all. Once one has failed, the others get SIGTERM, unless they may go on. The first exit code that
 * is not 0, or 0; where the others may go on, 0 once one has ended well, else that of the last one.
 */
int emulate_run(const struct emulate *e, int (*node)(void *arg, int index), void *arg,
                const struct dd_log *log);

#endif
