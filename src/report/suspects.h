/* Finds the ranks for which the others waited when a job hung or collectives timed out, which the
 * failures alone do not show. Pure. */
#ifndef DD_REPORT_SUSPECTS_H
#define DD_REPORT_SUSPECTS_H

#include "report/rank_set.h"
#include "report/report.h"

/* Find the ranks that explain e, the failure of the first line (report_first_failure()), from what
 * all ranks were doing at that time: those that a signal has stopped, that have not entered a
 * collective according to PyTorch's flight recorder, that do not answer NCCL or have launched fewer
 * operations according to NCCL, whose stacks are in no collective while those of the others are, or
 * that wait in another collective than all others. Append "rank 5 on node1, which …" to why. Return
 * 1, or 0 and append nothing if e needs no explanation or nothing follows; -ENOMEM, -EMSGSIZE. */
int report_suspects(const struct report *r, const struct report_exit *e, struct rank_set *ret,
                    struct dd_buf *why);

/* True if the ranks that explain e wait for a process of their DataLoader, by their stacks. If no
 * rank explains e, check all ranks that were read. */
bool report_suspects_load(const struct report *r, const struct report_exit *e);

/* Return the node of a rank; "": unknown. */
const char *report_node_of(const struct report *r, int rank);

#endif
