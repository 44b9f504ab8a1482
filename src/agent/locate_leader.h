/* Find the daemon at one address: that of the first node, of a redirection, or of the leader that
 * etcd names. There is one search at a time, until a daemon is found or the search is stopped. */
#ifndef DD_AGENT_LOCATE_LEADER_H
#define DD_AGENT_LOCATE_LEADER_H

#include "agent/locate.h"

struct locate_leader;

/* A moment at which a node may report what it waits for. */
struct locate_wait {
    int nnodes, index;
    bool for_daemon;  /* result of link_find_waits_for_daemon() */
    uint64_t seconds; /* since the search began */
    bool reported;    /* this node has already reported its wait after LOCATE_ALONE_S */
};
enum { LOCATE_ALONE_S = 60 };

/* True if this node reports its wait to the user, false if only with -v. In a job of more than 8
 * nodes, as long as all nodes wait for the daemon, only the first node after the leader reports the
 * wait: the output of all nodes of a step may go to one terminal. But a node that finds no daemon
 * for LOCATE_ALONE_S may be the only one, because of another port, an old address of the first
 * node, or a firewall. Such a node reports its wait once. Pure. */
bool locate_leader_reports(const struct locate_wait *w);

/* Return the status of finding the leader's address, lent; NULL: no search. */
typedef const char *locate_status_f(const void *arg);

int locate_leader_new(struct locate_leader **ret, const struct locate *where);
/* Start the search. addr: where to search; NULL: at the address of the first node. */
int locate_leader_start(struct locate_leader *l, const char *addr, struct dd_err *err);
/* Start the progress reports, which use `status`, if it is not NULL, while there is no search. */
void locate_leader_begin(struct locate_leader *l, locate_status_f *status, const void *arg);
int locate_leader_connect(struct locate_leader *l, const struct link_find_cfg *cfg,
                          struct dd_err *err);
const char *locate_leader_status(const struct locate_leader *l); /* lent; NULL: no search */
/* Get what listens on the leader's port. False: no search. */
bool locate_leader_listener(const struct locate_leader *l, enum link_listener *ret);
void locate_leader_stop(struct locate_leader *l);
void locate_leader_free(struct locate_leader *l); /* NULL is fine */

#endif
