/* Derives problems and remedies from the nodes' results (look.h). Pure. */
#ifndef DD_DOCTOR_JUDGE_H
#define DD_DOCTOR_JUDGE_H

#include "base/buf.h"
#include "hostlist/hostlist.h"

#include <jansson.h>

/* What doctor_judge() judges, for a report without findings. */
#define DOCTOR_CHECKS                                                                              \
    "names, network, key, limits, /dev/shm, CPUs, GPUs, kernel, environment, versions"

/* looks: array with the results of the nodes; a missing node did not answer. advice: hints for
 * nodes with GPUs by the name of their fabric, {FABRIC: [{"what", "do"}]} (fabric.h); NULL: none.
 * Return an array of
 *   {"nodes": FOLDED, "what": SENTENCE, "do": SENTENCE, "hint": true if jobs can run with it}
 * with each finding once, for all its nodes, in the order of the checks. NULL: out of memory. */
json_t *doctor_judge(const json_t *looks, const struct hostlist *nodes, const json_t *advice);
/* Return the number of findings that are not hints. */
size_t doctor_faults(const json_t *findings);

#endif
