/* The tree by which a staged directory reaches the nodes of a round. Pure. */
#ifndef DD_STAGE_STAGE_TREE_H
#define DD_STAGE_STAGE_TREE_H

#include <stdbool.h>

/* Number of children of a node, to each of which it sends the whole copy. With 2, a network card
 * that sends and receives at once does both all the time, and each level of the tree adds only the
 * time of one chunk. */
enum { STAGE_FANOUT = 2 };

enum stage_has {
    STAGE_HAS_NONE,
    STAGE_HAS_CHANGED, /* a copy in which first lines of scripts differ from the source */
    STAGE_HAS_EXACT,   /* a copy that can be read in place of the source */
};

enum { STAGE_TREE_DEPTH = 32 };

struct stage_place {
    bool takes_part;               /* reads, receives or forwards */
    int parents[STAGE_TREE_DEPTH]; /* node ranks: the parent, its parent … and the root */
    int depth;                     /* number of parents; 0: this node is the root, which reads */
    int children;                  /* number of nodes that connect to this one */
    int below; /* number of nodes below this one in the tree, the only ones that may connect */
};

/* Return the rank of the root. */
int stage_tree_root(const enum stage_has *has, int n);
/* Return the place of node `me` of n. has[i]: the kind of copy that node i has. The first node with
 * an exact copy is the root and reads it; without any, the first node reads the source. Other nodes
 * that have a copy take no part. */
struct stage_place stage_tree_place(const enum stage_has *has, int n, int me);

#endif
