/* The links of an agent to daemons: the link in use, a link that a locator has just found, and
 * links to other daemons that have been asked to take this node. Only this file uses and closes
 * them. */
#ifndef DD_AGENT_UPLINK_H
#define DD_AGENT_UPLINK_H

#include "net/link.h"
#include "rdzv/msg.h"

#include <stdbool.h>

struct agent_loop;
struct uplink;

struct uplink_cb {
    void (*on_frame)(void *arg, const struct frame *f);
    void (*on_change)(void *arg); /* another link is in use, or none */
    /* Send JOIN on l by uplink_send_on(). */
    void (*send_join)(void *arg, struct link *l);
    void *arg;
};

int uplink_new(struct uplink **ret, struct agent_loop *loop, const struct uplink_cb *cb);
/* Close all links without a call of on_change. u may be NULL. */
void uplink_close(struct uplink *u);
void uplink_free(struct uplink *u); /* NULL is fine */

bool uplink_is_up(const struct uplink *u);
const struct link *uplink_link(const struct uplink *u);  /* the link in use, lent; NULL: none */
void uplink_send(struct uplink *u, const struct msg *m); /* dropped without a link in use */
void uplink_send_on(const struct uplink *u, struct link *l, const struct msg *m);
int uplink_send_piece(struct uplink *u, const void *piece, size_t len); /* 0 without a link */
/* Send a message of the store's relay. p NULL (out of memory), or a failure, ends the link. */
void uplink_send_store(struct uplink *u, const void *p, size_t n);
void uplink_refuse_store(struct uplink *u); /* a message of the store is malformed: end the link */

void uplink_use(struct uplink *u, struct link *l);  /* takes l, on which JOIN has been sent */
void uplink_join(struct uplink *u, struct link *l); /* takes l, sends JOIN */
void uplink_drop(struct uplink *u);                 /* close the link in use */
int uplink_send_bye(struct uplink *u, const char *why);
/* Send this node's daemon the address to which it redirects its nodes, then BYE. */
void uplink_give_way(struct uplink *u, const char *addr);

void uplink_found(struct uplink *u, struct link *l); /* for locators: takes l and raises AM_FOUND */
void uplink_join_found(struct uplink *u);
void uplink_ask_found(struct uplink *u);
void uplink_drop_found(struct uplink *u);

/* Use the link of the daemon that has just answered. gives_way: first call uplink_give_way() with
 * the address of that daemon. */
void uplink_move(struct uplink *u, bool gives_way);
void uplink_drop_other(struct uplink *u); /* close the link of the daemon that has just answered */
void uplink_drop_others(struct uplink *u);
bool uplink_asks(const struct uplink *u); /* True if a daemon has yet to answer */

#endif
