/* Whether this node is fit for workers, as far as can be seen in a moment and without harm. */
#ifndef DD_NODE_HEALTH_H
#define DD_NODE_HEALTH_H

#include "base/err.h"

enum node_health_bit {
    NODE_HEALTH_GPU = 1,  /* as many GPUs answer as the job uses here */
    NODE_HEALTH_IB = 2,   /* InfiniBand ports that were active at the start are so still */
    NODE_HEALTH_SHM = 4,  /* /dev/shm has room */
    NODE_HEALTH_DISK = 8, /* temporary files can be written */
};

/* "gpu,ib", "all" or "none". The bits, or -EINVAL with a sentence. */
int node_health_parse(const char *list, struct dd_err *err);

struct node_health_cfg {
    int checks;         /* bits */
    int gpus;           /* that the job uses on this node */
    const char *tmpdir; /* borrowed for good */
    const char *root;   /* "", or where a test keeps its sys and dev; borrowed for good */
};

struct node_health;

/* Notes what is there now. Gives *ret. */
int node_health_new(struct node_health **ret, const struct node_health_cfg *cfg,
                    struct dd_err *err);
/* 0: fit. 1: not, and why, as a sentence about the node. */
int node_health_check(const struct node_health *h, struct dd_err *why);
void node_health_free(struct node_health *h);

#endif
