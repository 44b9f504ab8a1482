/* The started side of a start: fetches the node's package from the one that has started it
 * (launch/bootstrap_server.h) and stays in touch with it over the same link. */
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
    int stdin_fd; /* once it has ended, there is nobody to fetch it from; -1 */
};
/* Fetches the package, and what this node is to do for others. Gives *ret, which has an event base
 * of its own. */
int bootstrap_fetch(struct parent_link **ret, struct bootstrap_payload *ret_payload,
                    struct launch_task *ret_task, const struct bootstrap_fetch_cfg *cfg,
                    struct dd_err *err);
struct event_base *parent_link_base(const struct parent_link *u);

struct parent_link_cb {
    void (*on_message)(void *arg, const struct launch_msg *m);
    void (*on_room)(void *arg);                  /* for more output */
    void (*on_lost)(void *arg, const char *why); /* once: nobody is there any more */
    void *arg;
};
void parent_link_start(struct parent_link *u, const struct parent_link_cb *cb);
void parent_link_send(struct parent_link *u, enum launch_msg_type type, int node, uint32_t value);
/* How much output of a stream may be put now. What is put beyond is sent all the same. */
size_t parent_link_room(const struct parent_link *u, int which);
void parent_link_write(struct parent_link *u, int which, const void *p, size_t n);
void parent_link_end(struct parent_link *u); /* of all streams: no more comes. Twice is fine. */
bool parent_link_empty(
    const struct parent_link *u); /* all that was put has gone on up there, or there is nobody */
/* Says goodbye, waits for it to be heard, and frees. NULL is fine. */
void parent_link_free(struct parent_link *u);

#endif
