/* Requests of ddctl on this node, forwarded to the daemon, and the daemon's replies. The kernel
 * names the user of each caller (net/local_socket.h). A caller that does not read its replies is
 * dropped. */
#ifndef DD_AGENT_CONTROL_H
#define DD_AGENT_CONTROL_H

#include "agent/agent_loop.h"
#include "agent/uplink.h"

struct control;

/* Ids of the agent's own CTL_REQUESTs. Requests of ddctl have higher ids. */
enum {
    CONTROL_ID_METRICS,
    CONTROL_ID_PROFILE,
    CONTROL_ID_WAITING,
    CONTROL_ID_CHARGES,
    CONTROL_IDS
};

/* Returns NULL if ddctl cannot be served; the reason is logged (debug). */
struct control *control_new(struct agent_loop *loop, struct uplink *uplink);

/* k may be NULL in all functions below. */
void control_take(struct control *k, const struct msg_ctl_reply *m);
void control_lost(struct control *k); /* the link in use has changed: refuse pending requests */
void control_free(struct control *k); /* sends queued replies; call before the loop is freed */

#endif
