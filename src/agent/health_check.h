/* Health checks of this node: the built-in ones, then the user's command (--health-check). */
#ifndef DD_AGENT_HEALTH_CHECK_H
#define DD_AGENT_HEALTH_CHECK_H

#include "base/err.h"

struct health;
struct round; /* agent/round.h */

/* r is borrowed until health_free(): it has the configuration, and processes of a check are
 * protected from the end of its workers. The caller frees *ret also on failure. */
int health_new(struct health **ret, const struct round *r, struct dd_err *err);
/* Call then() at once, or from the loop after the command has exited or timed out. */
void health_check(struct health *h, void (*then)(void *arg), void *arg);
/* Reason why the last check failed, lent until the next check; "": it passed. */
const char *health_unfit(const struct health *h);
void health_free(struct health *h); /* NULL is fine */

#endif
