/* Where nodes that a starter has started fetch their package (launch/bootstrap_payload.h) from the
 * one that has started them, and stay in touch (launch/parent_link.h): it is for whoever proves
 * that it has the key.
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
/* The argument with which a node finds the door, by `start`: its key, path and hosts. free() */
char *bootstrap_server_argument(const struct bootstrap_server *d, int index,
                                const struct launch_ticket *start);
/* To a node that has fetched its package and is not gone; else nothing happens. */
void bootstrap_server_send(const struct bootstrap_server *d, int index, enum launch_msg_type type,
                           int node, uint32_t value);
bool bootstrap_server_is_connected(const struct bootstrap_server *d,
                                   int index); /* the node is there */
void bootstrap_server_close_listener(
    const struct bootstrap_server *d); /* in a child, which does not run the loop */
void bootstrap_server_free(struct bootstrap_server *d);

#endif
