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
    const char *id;               /* of this start, in place of a job id */
    const struct dd_buf *payload; /* borrowed */
    const struct net_key *key;
    const struct net_key_input *key_in;
    int nnodes;
    /* Of a node that asks; what it lends is sent at once. False: it is not to come. */
    bool (*task)(void *arg, int index, struct launch_task *ret);
    /* Each node once, if it is true. False: it is no more to come, and its agent is told to leave
     * at once. */
    bool (*on_fetched)(void *arg, int index);
    /* Afterwards. */
    void (*on_message)(void *arg, int index, const struct launch_msg *m);
    /* n 0: that was all. < 0: the node is dropped. */
    int (*on_output)(void *arg, int index, int which, const void *p, size_t n);
    void (*on_gone)(void *arg, int index); /* it says nothing any more */
    void *arg;
};

int bootstrap_server_new(struct bootstrap_server **ret, struct event_base *base,
                         const struct bootstrap_server_cfg *cfg, struct dd_err *err);
/* Gives the argument that leads a node here, from the key, path and hosts of `start`. */
char *bootstrap_server_argument(const struct bootstrap_server *d, int index,
                                const struct launch_ticket *start);
/* Send to a node that is connected; otherwise do nothing. */
void bootstrap_server_send(const struct bootstrap_server *d, int index, enum launch_msg_type type,
                           int node, uint32_t value);
bool bootstrap_server_is_connected(const struct bootstrap_server *d,
                                   int index); /* the node is there */
void bootstrap_server_free(struct bootstrap_server *d);

#endif
