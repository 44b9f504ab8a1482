/* Leader election through etcd (--rdzv-endpoint=etcd://...). Without etcd, all functions but
 * locate_etcd_start(), _follow() and _yield() do nothing. */
#ifndef DD_AGENT_LOCATE_ETCD_H
#define DD_AGENT_LOCATE_ETCD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct agent;
struct locate_etcd;

/* Look for the leader, or become it (AM_LEAD). Requires a->cfg->etcd. */
int locate_etcd_start(struct agent *a, struct dd_err *err);
/* Connect to the leader that etcd has named last. */
int locate_etcd_follow(struct agent *a, struct dd_err *err);
/* Before the first round: send PROBE_RESULT to the daemon once etcd shows that no other leader has
 * started the job. */
void locate_etcd_check(struct agent *a);
/* After AM_ELSEWHERE: redirect the nodes of this node's daemon. */
void locate_etcd_yield(struct agent *a);
const char *
locate_etcd_status(const struct agent *a); /* status of the search, lent; NULL: no search */

int locate_etcd_take_listener(
    struct agent *a,
    uint16_t *ret_port); /* hand over the listening socket of the claim; -1: none */
void locate_etcd_hosting(struct agent *a, uint16_t port); /* this node's daemon listens on port */
void locate_etcd_changed(
    struct agent *a); /* call after PLAN and ROUND_STARTED: a round may have started */
void locate_etcd_following(
    struct agent *a);                   /* the link in use leads to the daemon of another node */
void locate_etcd_over(struct agent *a); /* the job has ended: remove this agent's key */
void locate_etcd_free(struct agent *a); /* waits up to 1 s for the last request */

#endif
