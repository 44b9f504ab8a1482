/* The searches of this node for a daemon: at the first node, on any node, among the members of the
 * last round, through etcd, and on this host. */
#ifndef DD_AGENT_LOCATORS_H
#define DD_AGENT_LOCATORS_H

#include "agent/locate.h"
#include "agent/locate_etcd.h"
#include "agent/locate_leader.h"
#include "agent/locate_local.h"
#include "agent/locate_members.h"
#include "agent/locate_peers.h"

struct round;

/* Written by locators.c only. */
struct locators {
    struct locate where;
    struct locate_leader *leader;
    struct locate_peers *peers;
    struct locate_members *members;
    struct locate_local *local;
    struct locate_etcd *etcd; /* NULL: etcd is not used, or not queried yet */
    struct locate_etcd_parts etcd_parts;
};

/* All pointers are borrowed until locators_done(), which is called also after a failure. */
int locators_init(struct locators *l, struct agent_loop *loop, struct uplink *uplink,
                  const struct round_history *history, const struct round *round,
                  struct dd_err *err);
void locators_done(struct locators *l);

int locators_start(struct locators *l, struct dd_err *err); /* find the first daemon */
/* Search for a daemon at addr (from PROBE_REQUEST); addr NULL: at the leader that etcd names. With
 * etcd, an addr is not used: the search in etcd begins again. */
int locators_start_there(struct locators *l, const char *addr, struct dd_err *err);
void locators_stop_probes(struct locators *l); /* stop the searches among peers and members */
/* Stop all searches but that in etcd. May be called after a failure of locators_init(). */
void locators_stop(struct locators *l);

#endif
