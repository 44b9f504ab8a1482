#include "stage/stage_tree.h"

int stage_tree_root(const enum stage_has *has, int n)
{
    for (int i = 0; i < n; i++)
        if (has[i] == STAGE_HAS_EXACT)
            return i;
    return 0;
}

/* Return the node rank at a position of the tree, in breadth-first order; -1: there is none. */
static int at_position(const enum stage_has *has, int n, int root, int position)
{
    if (position == 0)
        return root;
    for (int i = 0; i < n; i++)
        if (i != root && has[i] == STAGE_HAS_NONE && --position == 0)
            return i;
    return -1;
}

/* Count the positions below this one in a tree whose last position is `last`. */
static int below_position(int position, int last)
{
    int n = 0;
    int from = position;
    int to = position;
    for (;;) {
        from = from * STAGE_FANOUT + 1;
        to = to * STAGE_FANOUT + STAGE_FANOUT;
        if (from > last)
            return n;
        n += (to < last ? to : last) - from + 1;
    }
}

struct stage_place stage_tree_place(const enum stage_has *has, int n, int me)
{
    struct stage_place p = {0};
    const int root = stage_tree_root(has, n);
    int position = 0;
    int needing = 0;
    for (int i = 0; i < n; i++) {
        needing += i != root && has[i] == STAGE_HAS_NONE;
        if (i == me && me != root)
            position = needing;
    }
    if (me != root && has[me] != STAGE_HAS_NONE)
        return p;
    p.takes_part = me != root || needing > 0 || has[root] == STAGE_HAS_NONE;
    for (int i = 1; i <= STAGE_FANOUT; i++)
        p.children += position * STAGE_FANOUT + i <= needing;
    p.below = below_position(position, needing);
    while (position > 0 && p.depth < STAGE_TREE_DEPTH) {
        position = (position - 1) / STAGE_FANOUT;
        p.parents[p.depth++] = at_position(has, n, root, position);
    }
    return p;
}
