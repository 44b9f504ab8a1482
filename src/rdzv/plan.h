/* The plan of a round for one agent, and the layout of ranks. Pure. */
#ifndef DD_RDZV_PLAN_H
#define DD_RDZV_PLAN_H

#include "base/auto.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/strv.h"

#include <stdint.h>

enum { PLAN_MAX_NODES = 65536, PLAN_MAX_SLOTS = 4096 };

struct plan {
    int round;         /* number of the round, from 0 */
    int nnodes;        /* nodes of this round */
    int node_rank;     /* node rank of this node */
    int first_rank;    /* rank of this node's local rank 0 */
    int local_size;    /* workers of this node */
    int world_size;    /* workers of all nodes */
    int restart_count; /* restarts used so far, the same on all nodes */
    int max_restarts;
    char *master_addr; /* numeric address of the daemon's node that this node has reached */
    uint16_t master_port;
    int *sizes;        /* [nnodes] workers of each node, in node rank order */
    char *coordinator; /* "host:port" that the first node has reserved for rank 0; NULL: none */
    struct dd_strv endpoints; /* "host:port" of each rank, if requested; else empty */
    char *token;              /* random secret, the same on all nodes of the round */
    char *nodes;              /* node names as a folded host list, in node rank order */
};

void plan_clear(struct plan *p);

/* Return the rank of a node's local rank 0: the sum of the sizes before it, as ranks are assigned
 * node by node. */
int plan_first_rank(const int *sizes, int node_rank);

/* Text form of sizes, as Slurm writes it: "2(x3),1". -EINVAL with a message, -E2BIG, -ENOMEM. */
int plan_sizes_format(struct dd_buf *out, const int *sizes, int n);
int plan_sizes_parse(int **ret, int *ret_n, const char *text, struct dd_err *err);

static inline void dd_auto_plan(struct plan *p)
{
    plan_clear(p);
}

#endif
