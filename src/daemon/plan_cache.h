/* Sends PLAN and ROUND_MEMBERS. Texts that are equal for all nodes of a round are generated once,
 * since there may be thousands of nodes. */
#ifndef DD_DAEMON_PLAN_CACHE_H
#define DD_DAEMON_PLAN_CACHE_H

#include "daemon/session.h"
#include "rdzv/machine.h"

struct plan_cache {
    int round;        /* the round that the texts and the plan are for; -1: none */
    struct plan plan; /* of one member of the round */
    char *sizes, *members, *ports;
    char *charges;  /* NULL: none */
    char token[33]; /* random, the same for all rounds */
};

int plan_cache_init(struct plan_cache *c, struct dd_err *err);
void plan_cache_done(struct plan_cache *c); /* also allowed after a failed init */

/* Send PLAN to a member of the round. A failure ends the link, because the node would wait for the
 * plan forever. */
void plan_cache_send_plan(struct plan_cache *c, const struct rdzv *machine, struct session *s);
/* Send a spare node the members of the round. */
void plan_cache_send_members(struct plan_cache *c, const struct rdzv *machine, struct session *s);

#endif
