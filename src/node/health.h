/* Quick checks, without side effects, of whether this node can run workers. */
#ifndef DD_NODE_HEALTH_H
#define DD_NODE_HEALTH_H

#include "base/err.h"

enum node_health_bit {
    NODE_HEALTH_GPU = 1,  /* as many GPUs respond as the job uses here */
    NODE_HEALTH_IB = 2,   /* InfiniBand ports that were active at the start are still active */
    NODE_HEALTH_SHM = 4,  /* /dev/shm has free space */
    NODE_HEALTH_DISK = 8, /* temporary files can be written */
};

/* Parse "gpu,ib", "all" or "none". Return the bits, or -EINVAL with a message. */
int node_health_parse(const char *list, struct dd_err *err);

struct node_health_cfg {
    int checks;         /* bits */
    int gpus;           /* number that the job uses on this node */
    const char *tmpdir; /* borrowed until free */
    const char *root;   /* "", or a directory with sys and dev for tests; borrowed until free */
};

struct node_health;

/* Note the present state as reference. The caller owns *ret. */
int node_health_new(struct node_health **ret, const struct node_health_cfg *cfg,
                    struct dd_err *err);
/* Return 0 if all checks pass, or 1 with the reason in *why. */
int node_health_check(const struct node_health *h, struct dd_err *why);
void node_health_free(struct node_health *h);

#endif
