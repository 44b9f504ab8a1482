/* Health checks of this node: the built-in ones, then the user's command (--health-check). */
#ifndef DD_AGENT_HEALTH_CHECK_H
#define DD_AGENT_HEALTH_CHECK_H

#include "base/err.h"

#include <stdint.h>

struct gpu_usage; /* node/gpu_usage.h */
struct health;
struct node_health_list; /* node/health.h */
struct round;            /* agent/round.h */

struct health_cfg {
    const struct node_health_list *list;
    int gpus;            /* GPUs of this node that the job uses */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set */
    const char *nvml;    /* library of NVML; NULL: the installed one */
    unsigned usage_ms;   /* interval of reading the usage of the GPUs; 0: never */
    const char *tmpdir;
    const char *command; /* --health-check: shell command; NULL: none */
    uint64_t limit_ns;   /* time limit of the built-in checks, and of the command */
};

/* cfg and r are borrowed until health_free(); processes of a check are not killed with the workers
 * of r. The caller frees *ret also on failure. */
int health_new(struct health **ret, const struct health_cfg *cfg, const struct round *r,
               struct dd_err *err);
/* Run the checks. Calls then() at once, or from the loop when the checks have ended or timed out.
 */
void health_check(struct health *h, void (*then)(void *arg), void *arg);
/* Return the reason why the last check failed, lent until the next check; "": the check passed. */
const char *health_unfit(const struct health *h);
/* Return the name of the check that failed last, as in --health, or "--health-check"; "": all
 * checks passed, or unknown. */
const char *health_failed_check(const struct health *h);
/* Return findings of the last check that do not exclude the node, one sentence per line; "": none.
 * Lent until the next check. */
const char *health_warnings(const struct health *h);
/* Return the usage of the GPUs, as node_health_gpus(): the last one that the helper process has
 * read, which also waits for XIDs. */
int health_gpus(const struct health *h, struct gpu_usage *ret, uint64_t *ret_readings);
void health_free(struct health *h); /* NULL is fine */

#endif
