/* Checks of whether this node can run workers, before each round. */
#ifndef DD_NODE_HEALTH_H
#define DD_NODE_HEALTH_H

#include "base/err.h"
#include "node/gpu_usage.h"
#include "node/health_list.h"

/* Parse "gpu,ib,storage=/scratch", "all" or "none". 0, or -EINVAL with a message. */
int node_health_parse(struct node_health_list *ret, const char *text, struct dd_err *err);

struct node_health;

/* Note the present state as reference. The caller owns *ret. */
int node_health_new(struct node_health **ret, const struct node_health_cfg *cfg,
                    struct dd_err *err);
/* True if the selected checks have nothing to check on this node: no GPU, no active port. */
bool node_health_is_idle(const struct node_health *h);
/* Return 0 if all checks pass, or 1 with the reason in *why. A check may hang: run it in a child.
 * Checks of children of this process compare with one another. */
int node_health_check(const struct node_health *h, struct dd_err *why);
/* Note XIDs of the GPUs until this process is killed, for checks in other children, and the usage
 * of the GPUs, for node_health_gpus(). Returns only if that is not possible. */
void node_health_watch(const struct node_health *h);
/* Return the number of GPUs that node_health_watch() in a child has read last, and write them to
 * ret. *ret_readings: how often it has read them. */
int node_health_gpus(const struct node_health *h, struct gpu_usage ret[GPU_USAGE_MAX],
                     uint64_t *ret_readings);
void node_health_free(struct node_health *h);

/* Of the last check, also one that hangs or was killed; lent. */
const char *node_health_name(const struct node_health *h);     /* "gpu", "storage=/scratch" */
const char *node_health_doing(const struct node_health *h);    /* what it was checking */
const char *node_health_warnings(const struct node_health *h); /* sentences, one a line */
const char *node_health_note(const struct node_health *h);     /* a check that was not made */

#endif
