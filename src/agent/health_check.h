/* The checks before a round: the built-in ones, then the user's own command. */
#ifndef DD_AGENT_HEALTH_CHECK_H
#define DD_AGENT_HEALTH_CHECK_H

#include "base/err.h"

struct agent;
struct health;

int health_new(struct agent *a, struct dd_err *err);
/* then() is called at once, or from the loop when the command has ended or its time is over. */
void health_check(struct agent *a, void (*then)(struct agent *a));
/* What was found last: "" for nothing wrong. Lent until the next check. */
const char *health_unfit(const struct agent *a);
void health_free(struct agent *a);

#endif
