/* The links of an agent to daemons: the link in use, a link that a locator has just found, and
 * links to other daemons that have been asked to take this node. Only this file uses and closes
 * them. */
#ifndef DD_AGENT_UPLINK_H
#define DD_AGENT_UPLINK_H

#include "net/link.h"
#include "rdzv/msg.h"

#include <stdbool.h>

struct agent;

enum { UPLINK_OTHERS = 8 };

struct uplink {
    struct link *link; /* in use; NULL: none */
    bool bye_sent;     /* BYE sent on it: ignore anything received afterwards */
    struct link *found;
    struct link *others[UPLINK_OTHERS];
    struct link *answering; /* the one of `others` whose answer is being handled */
    void (*on_frame)(struct agent *a, const struct frame *f);
    void (*on_change)(struct agent *a); /* called after `link` has changed */
};

void agent_send(struct agent *a, const struct msg *m); /* dropped without a link in use */

void uplink_use(struct agent *a, struct link *l);  /* takes l, on which JOIN has been sent */
void uplink_join(struct agent *a, struct link *l); /* takes l, sends JOIN */
void uplink_drop(struct agent *a);                 /* close the link in use */
int uplink_send_bye(struct agent *a, const char *why);
/* Tell this node's daemon to redirect its nodes to the daemon at addr, and leave it. */
void uplink_give_way(struct agent *a, const char *addr);

void uplink_found(struct agent *a, struct link *l); /* for locators: takes l and raises AM_FOUND */
void uplink_join_found(struct agent *a);
void uplink_ask_found(struct agent *a);
void uplink_drop_found(struct agent *a);

void uplink_move(struct agent *a,
                 bool gives_way);        /* use the link of the daemon that has just answered */
void uplink_drop_other(struct agent *a); /* close the link of the daemon that has just answered */
void uplink_drop_others(struct agent *a);
bool uplink_asks(const struct agent *a); /* True if a daemon has yet to answer */

#endif
