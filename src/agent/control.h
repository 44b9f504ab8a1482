/* Requests of ddctl on this node, forwarded to the daemon, and its replies. The kernel names the
 * user of each caller (net/local_socket.h). A caller that does not read its replies is dropped. */
#ifndef DD_AGENT_CONTROL_H
#define DD_AGENT_CONTROL_H

#include "agent/agent_loop.h"
#include "agent/uplink.h"

struct control;

/* Ids of the agent's own CTL_REQUESTs; those of ddctl begin after them. */
enum {
    CONTROL_ID_METRICS,
    CONTROL_ID_PROFILE,
    CONTROL_ID_WAITING,
    CONTROL_ID_CHARGES,
    CONTROL_IDS
};

/* NULL, if ddctl cannot be served: a failure is only logged. */
struct control *control_new(struct agent_loop *loop, struct uplink *uplink);

/* NULL is fine for all below. */
void control_take(struct control *k, const struct msg_ctl_reply *m);
void control_lost(struct control *k); /* the link in use has changed: refuse pending requests */
void control_free(struct control *k); /* call just before the loop is freed */

#endif
