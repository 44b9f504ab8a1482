/* Derives problems and remedies from the nodes' results (look.h). Pure. */
#ifndef DD_DOCTOR_JUDGE_H
#define DD_DOCTOR_JUDGE_H

#include "base/buf.h"
#include "hostlist/hostlist.h"

#include <jansson.h>

/* looks: array of what the nodes said; a node that is missing there did not answer. Gives an array
 * of
 *   {"nodes": FOLDED, "what": SENTENCE, "do": SENTENCE, "hint": whether jobs run with it}
 * with each finding once, for all nodes that have it, in the order of doctor's table. NULL: no
 * memory. */
json_t *doctor_judge(const json_t *looks, const struct hostlist *nodes);
/* Return the number of findings that are not hints. */
size_t doctor_faults(const json_t *findings);

#endif
