/* Leader election through etcd (--rdzv-endpoint=etcd://...). */
#ifndef DD_AGENT_LOCATE_ETCD_H
#define DD_AGENT_LOCATE_ETCD_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct etcd_url; /* web/etcd_url.h */
struct locate;
struct locate_etcd;
struct locate_leader;
struct round;
struct round_history;

struct locate_etcd_cfg {
    const struct etcd_url *url; /* NULL: etcd is not used */
    const char *password;       /* NULL: none was given */
    const char *helper;         /* path of ddrun-web */
};

struct locate_etcd_parts {
    const struct locate_etcd_cfg *cfg; /* with a URL */
    struct locate *where;
    struct locate_leader *leader;
    const struct round_history *history;
    const struct round *round; /* helper processes are not killed with the workers of this round */
};

/* The caller frees *ret also on failure. */
int locate_etcd_new(struct locate_etcd **ret, const struct locate_etcd_parts *parts,
                    struct dd_err *err);
/* Look for the leader, or become it (AM_LEAD). */
void locate_etcd_start(struct locate_etcd *d);
/* Connect to the leader that etcd has named last. */
int locate_etcd_follow(struct locate_etcd *d, struct dd_err *err);
/* After AM_ELSEWHERE: redirect the nodes of this node's daemon. */
void locate_etcd_yield(struct locate_etcd *d);

/* d may be NULL (no etcd) in all functions below. */

/* Before the first round: send PROBE_RESULT to the daemon once etcd shows that no other leader has
 * started the job. */
void locate_etcd_check(struct locate_etcd *d);
/* Return the listening socket of the claim, which the caller closes; -1: none. */
int locate_etcd_take_listener(struct locate_etcd *d, uint16_t *ret_port);
/* Call when this node's daemon listens on the port. */
void locate_etcd_hosting(struct locate_etcd *d, uint16_t port);
/* Call after PLAN and ROUND_STARTED: a round may have started. */
void locate_etcd_changed(struct locate_etcd *d);
/* Call when the link in use leads to the daemon of another node. */
void locate_etcd_following(struct locate_etcd *d);
/* Call when the job has ended: removes this agent's key. */
void locate_etcd_over(struct locate_etcd *d);
void locate_etcd_free(struct locate_etcd *d); /* waits up to 1 s for the last request */

#endif
