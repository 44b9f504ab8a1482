/* Dispatch the agents' frames: one handler per message type. */
#ifndef DD_DAEMON_DISPATCH_H
#define DD_DAEMON_DISPATCH_H

#include "daemon/ctl_requests.h"
#include "daemon/exchange_relay.h"
#include "daemon/remaining_ranks.h"
#include "daemon/signal_broadcast.h"

struct dispatch {
    struct job *job; /* all pointers are borrowed */
    const struct session_set *sessions;
    struct admission *admission;
    struct event_log *events;
    struct job_metrics *metrics;
    struct charges_follow *charges;
    struct store_server *store;
    struct timeline *timeline; /* NULL: no --timeline */
    struct step_collect *steps;
    struct remaining_ranks *remaining;
    struct ctl_requests ctl;
    struct signal_broadcast broadcast;
    struct exchange_relay exchange;
};

/* Return the callbacks of the sessions, for struct session_cfg. d must be complete before the first
 * session is made. */
struct session_ops dispatch_session_ops(struct dispatch *d);
/* True if agents send this message type; false for the daemon's own types. */
bool dispatch_handles(enum msg_type type);

/* Callbacks of struct exchange_relay and struct ctl_requests; arg: the struct dispatch. */
int dispatch_send_exchange(void *arg, int node_rank, struct link_frames *f);
extern const struct ctl_ops dispatch_ctl_ops;

#endif
