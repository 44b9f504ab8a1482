/* Serves each started node its payload (launch/bootstrap_payload.h) and keeps the connection to it
 * (launch/parent_link.h). A node must prove that it has the key.
 */
#ifndef DD_LAUNCH_BOOTSTRAP_SERVER_H
#define DD_LAUNCH_BOOTSTRAP_SERVER_H

#include "launch/bootstrap_payload.h"
#include "launch/ticket.h"
#include "launch/launch_msg.h"
#include "net/key.h"
#include "net/link.h"

struct event_base;
struct bootstrap_server;

struct bootstrap_server_cfg {
    const char *id;               /* id of this start, used instead of a job id */
    const struct dd_buf *payload; /* borrowed */
    const struct net_key *key;
    const struct net_key_input *key_in;
    int nnodes;
    /* Set *ret to the task of a node that has connected. The memory to which it points must stay
     * valid until the next callback. Return false if the node is not expected. */
    bool (*task)(void *arg, int index, struct launch_task *ret);
    /* Called when a node has received the payload, until it has returned true once for this node.
     * Return false if the node is no longer expected: its agent is ordered to exit. */
    bool (*on_fetched)(void *arg, int index);
    /* Called for each message of a node for which on_fetched has returned true. */
    void (*on_message)(void *arg, int index, const struct launch_msg *m);
    /* Called for output of such a node. which: 0: stdout, 1: stderr; n 0: end of the stream. Return
     * < 0 to disconnect the node. */
    int (*on_output)(void *arg, int index, int which, const void *p, size_t n);
    void (*on_gone)(void *arg, int index); /* the node has disconnected */
    void *arg;
};

int bootstrap_server_new(struct bootstrap_server **ret, struct event_base *base,
                         const struct bootstrap_server_cfg *cfg, struct dd_err *err);
/* Return the argument with which a node finds this server, made from key, path and hosts of `start`
 * (free()); NULL: out of memory. */
char *bootstrap_server_argument(const struct bootstrap_server *d, int index,
                                const struct launch_ticket *start);
/* Send a message to a node. Do nothing if the node is not connected, or d is NULL. */
void bootstrap_server_send(const struct bootstrap_server *d, int index, enum launch_msg_type type,
                           int node, uint32_t value);
/* True if the node is connected; false if d is NULL. */
bool bootstrap_server_is_connected(const struct bootstrap_server *d, int index);
void bootstrap_server_free(struct bootstrap_server *d);

#endif
