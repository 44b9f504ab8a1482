/* The started node's side of a start: fetches its payload from the node that has started it
 * (launch/bootstrap_server.h), and stays connected over the same link. */
#ifndef DD_LAUNCH_PARENT_LINK_H
#define DD_LAUNCH_PARENT_LINK_H

#include "launch/bootstrap_payload.h"
#include "launch/ticket.h"
#include "launch/launch_msg.h"
#include "net/key.h"
#include "net/link.h"

struct event_base;

struct parent_link;

/* All borrowed for the call. */
struct bootstrap_fetch_cfg {
    const struct launch_ticket *ticket;
    const struct net_key_input *key_in;
    const struct dd_log *log;
    unsigned limit_ms;
    int stdin_fd; /* EOF means that the launcher has exited; -1: none */
};
/* Fetch the payload, and the task of starting other nodes. The caller owns *ret, which has its own
 * event base. */
int bootstrap_fetch(struct parent_link **ret, struct bootstrap_payload *ret_payload,
                    struct launch_task *ret_task, const struct bootstrap_fetch_cfg *cfg,
                    struct dd_err *err);
struct event_base *parent_link_base(const struct parent_link *u);

struct parent_link_cb {
    void (*on_message)(void *arg, const struct launch_msg *m);
    void (*on_room)(void *arg);                  /* there is room for more output */
    void (*on_lost)(void *arg, const char *why); /* called once: the parent is lost */
    void *arg;
};
void parent_link_start(struct parent_link *u, const struct parent_link_cb *cb);
void parent_link_send(struct parent_link *u, enum launch_msg_type type, int node, uint32_t value);
/* Return how many bytes of a stream should be written now. parent_link_write() sends more all the
 * same. */
size_t parent_link_room(const struct parent_link *u, int which);
void parent_link_write(struct parent_link *u, int which, const void *p, size_t n);
void parent_link_end(struct parent_link *u); /* ends all streams; may be called twice */
bool parent_link_empty(
    const struct parent_link *u); /* true if the parent has passed on all output, or is lost */
/* Send BYE, wait until the parent has read it, and free. NULL is allowed. */
void parent_link_free(struct parent_link *u);

#endif
