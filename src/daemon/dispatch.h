/* From the frames of the agents to what takes them: one handler for each type of message. */
#ifndef DD_DAEMON_DISPATCH_H
#define DD_DAEMON_DISPATCH_H

#include "daemon/ctl_requests.h"
#include "daemon/exchange_relay.h"
#include "daemon/signal_broadcast.h"

struct dispatch {
    struct job *job; /* what is pointed to is borrowed */
    const struct session_set *sessions;
    struct admission *admission;
    struct event_log *events;
    struct ctl_requests ctl;
    struct signal_broadcast broadcast;
    struct exchange_relay exchange;
};

/* The callbacks of the sessions; d is complete before the first session is made. */
struct session_ops dispatch_session_ops(struct dispatch *d);
/* Whether the daemon takes messages of that type; it ignores its own types. */
bool dispatch_handles(enum msg_type type);

/* Callbacks of struct exchange_relay and struct ctl_requests; arg: the struct dispatch. */
int dispatch_send_exchange(void *arg, int node_rank, struct link_frames *f);
extern const struct ctl_ops dispatch_ctl_ops;

#endif
