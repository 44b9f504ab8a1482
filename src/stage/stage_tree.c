#include "stage/stage_tree.h"

/* The node rank at a position of the tree, in breadth-first order; -1: there is none. */
static int at_position(const bool *has, int n, int position)
{
    if (position == 0)
        return 0;
    for (int i = 1; i < n; i++)
        if (!has[i] && --position == 0)
            return i;
    return -1;
}

struct stage_place stage_tree_place(const bool *has, int n, int me)
{
    struct stage_place p = {.parent = -1};
    int position = 0;
    int needing = 0;
    for (int i = 1; i < n; i++) {
        needing += !has[i];
        if (i == me)
            position = needing;
    }
    if (me != 0 && has[me])
        return p;
    p.takes_part = me != 0 || needing > 0 || !has[0];
    if (me != 0)
        p.parent = at_position(has, n, (position - 1) / STAGE_FANOUT);
    for (int i = 1; i <= STAGE_FANOUT; i++)
        p.children += position * STAGE_FANOUT + i <= needing;
    return p;
}
