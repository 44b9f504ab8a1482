/* Progress of the copies of a subtree, which each node reports to its parent, for the terminal.
 * Pure. */
#ifndef DD_STAGE_STAGE_TALLY_H
#define DD_STAGE_STAGE_TALLY_H

#include <stdint.h>

#define STAGE_NOBODY UINT32_MAX

struct stage_tally {
    uint32_t done;    /* nodes whose copy is complete */
    uint32_t lag;     /* chunks that the slowest node lacks though its parent has them; 0: none */
    uint32_t slowest; /* node rank of that node; STAGE_NOBODY if lag is 0 */
};

#define STAGE_TALLY_NONE ((struct stage_tally){.slowest = STAGE_NOBODY})

/* Add what the child of this rank has reported. lacks: number of chunks that this node has and the
 * child's subtree lacks. Of these, child->lag are missing at a node below the child; the others are
 * missing at the child, and the nodes below it wait for the child. below: number of nodes below
 * this one. */
void stage_tally_add(struct stage_tally *t, const struct stage_tally *child, uint32_t rank,
                     uint32_t lacks, uint32_t below);

#endif
