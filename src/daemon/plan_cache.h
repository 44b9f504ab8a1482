/* PLAN and ROUND_MEMBERS. The texts that are the same for all nodes of a round are made once: there
 * may be thousands of nodes. */
#ifndef DD_DAEMON_PLAN_CACHE_H
#define DD_DAEMON_PLAN_CACHE_H

#include "daemon/session.h"
#include "rdzv/machine.h"

struct plan_cache {
    int round; /* of the texts; -1: none yet */
    char *sizes, *members, *ports;
    char token[33]; /* random, for all rounds */
};

int plan_cache_init(struct plan_cache *c, struct dd_err *err);
void plan_cache_done(struct plan_cache *c); /* also after a failed init */

/* Sends PLAN to a member of the round; without it the node would wait forever, so a failure ends
 * the link. */
void plan_cache_send_plan(struct plan_cache *c, const struct rdzv *machine, struct session *s);
/* Tells a spare node the members of the round. */
void plan_cache_send_members(struct plan_cache *c, const struct rdzv *machine, struct session *s);

#endif
