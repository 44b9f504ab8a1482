/* The job's host through etcd: who is it, and are we? Only where --rdzv-endpoint names an etcd;
 * else every function here does nothing. Private to this room. */
#ifndef DD_AGENT_LOCATE_ETCD_H
#define DD_AGENT_LOCATE_ETCD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct agent;
struct locate_etcd;

/* Looks for the host, or becomes it (AM_LEAD); a->cfg->etcd is there. */
int locate_etcd_start(struct agent *a, struct dd_err *err);
/* Connects to the host that etcd has named last. */
int locate_etcd_follow(struct agent *a, struct dd_err *err);
/* Before the first round: the daemon gets PROBE_RESULT when it is known that no other host's job
 * has begun. */
void locate_etcd_check(struct agent *a);
void locate_etcd_yield(struct agent *a); /* after AM_ELSEWHERE: the own daemon gives way */
const char *
locate_etcd_status(const struct agent *a); /* how it stands, lent; NULL: nothing is sought */

int locate_etcd_take_listener(
    struct agent *a, uint16_t *ret_port); /* the host's socket, given; -1: there is none yet */
void locate_etcd_hosting(struct agent *a, uint16_t port); /* a daemon of ours listens there now */
void locate_etcd_changed(struct agent *a);                /* a round may have begun */
void locate_etcd_following(struct agent *a);              /* another node's daemon has our link */
void locate_etcd_over(struct agent *a); /* the job is: nobody is to find us any more */
void locate_etcd_free(struct agent *a); /* waits for the last word to etcd, 1 s at most */

#endif
