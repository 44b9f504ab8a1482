/* The checks before a round: the built-in ones, then the user's own command. */
#ifndef DD_AGENT_HEALTH_CHECK_H
#define DD_AGENT_HEALTH_CHECK_H

#include "base/err.h"

struct health;
struct round; /* agent/round.h */

/* r, borrowed until health_free(): the configuration, and workers that a check is none of. On
 * failure *ret is the caller's to free, too. */
int health_new(struct health **ret, const struct round *r, struct dd_err *err);
/* then() is called at once, or from the loop when the command has ended or its time is over. */
void health_check(struct health *h, void (*then)(void *arg), void *arg);
/* What the last check found: "" for nothing wrong. Lent until the next check. */
const char *health_unfit(const struct health *h);
void health_free(struct health *h); /* NULL is fine */

#endif
