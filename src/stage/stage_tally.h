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

/* Add what the child of this rank has reported. lacks: chunks that its subtree lacks though this
 * node has them: those that are not missing further below are missing at the child itself, for
 * which the nodes below it merely wait. below: number of nodes below this one. */
void stage_tally_add(struct stage_tally *t, const struct stage_tally *child, uint32_t rank,
                     uint32_t lacks, uint32_t below);

#endif
