/* The tree by which a staged directory reaches the nodes of a round. Pure. */
#ifndef DD_STAGE_STAGE_TREE_H
#define DD_STAGE_STAGE_TREE_H

#include <stdbool.h>

/* Each node sends everything this many times: with 2 a network card that sends and receives at
 * once is busy with both, and each level of the tree adds the time of one chunk alone. */
enum { STAGE_FANOUT = 2 };

struct stage_place {
    bool takes_part; /* reads, receives or forwards */
    int parent;      /* node rank; -1: this node reads the source */
    int children;    /* number of nodes that connect to this one */
};

/* Place of node `me` of n. has[i]: node i has the copy already. The first node is the root, whether
 * or not it has a copy; nodes that have one take no part. */
struct stage_place stage_tree_place(const bool *has, int n, int me);

#endif
