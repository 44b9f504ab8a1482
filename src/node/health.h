/* Checks before each round whether this node can run workers. */
#ifndef DD_NODE_HEALTH_H
#define DD_NODE_HEALTH_H

#include "base/err.h"
#include "node/gpu_usage.h"
#include "node/health_list.h"

/* Parse "gpu,ib,storage=/scratch", "all" or "none". 0, or -EINVAL with a message. */
int node_health_parse(struct node_health_list *ret, const char *text, struct dd_err *err);

struct node_health;

/* Record the GPUs and ports that this node has now, with which the checks compare. The caller owns
 * *ret. */
int node_health_new(struct node_health **ret, const struct node_health_cfg *cfg,
                    struct dd_err *err);
/* True if the selected checks have nothing to check on this node: no GPU, no active port. */
bool node_health_is_idle(const struct node_health *h);
/* Return 0 if all checks pass, or 1 with the reason in *why. A check may hang: run it in a child.
 * Each check compares with the previous one, also if both run in different children. */
int node_health_check(const struct node_health *h, struct dd_err *why);
/* Store XIDs of the GPUs, for checks in other children, and the usage of the GPUs, for
 * node_health_gpus(), until this process is killed. Returns only if NVML does not permit that. */
void node_health_watch(const struct node_health *h);
/* Copy the last usage that node_health_watch() in a child has read to ret, and return the number of
 * GPUs. *ret_readings: how often the child has read the usage. */
int node_health_gpus(const struct node_health *h, struct gpu_usage ret[GPU_USAGE_MAX],
                     uint64_t *ret_readings);
void node_health_free(struct node_health *h);

/* Describe the last check, also one that hangs or was killed; lent until node_health_free(). */
const char *node_health_name(const struct node_health *h);     /* "gpu", "storage=/scratch" */
const char *node_health_doing(const struct node_health *h);    /* object that it examined last */
const char *node_health_warnings(const struct node_health *h); /* sentences, one a line */
const char *
node_health_note(const struct node_health *h); /* why a part of it was skipped; "": none was */

#endif
