/* The links of an agent to daemons: the one in use, the one that a locator has just found, and
 * those to daemons that are asked beside the one in use whether they take this node. Nothing else
 * opens, uses or closes them. */
#ifndef DD_AGENT_UPLINK_H
#define DD_AGENT_UPLINK_H

#include "net/link.h"
#include "rdzv/msg.h"

#include <stdbool.h>

struct agent;

enum { UPLINK_OTHERS = 8 };

struct uplink {
    struct link *link; /* in use; NULL: none */
    bool bye_sent;     /* on it: ignore what is received afterwards */
    struct link *found;
    struct link *others[UPLINK_OTHERS];
    struct link *answering; /* of those */
    void (*on_frame)(struct agent *a, const struct frame *f);
    void (*on_change)(struct agent *a); /* `link` is another one now, or none */
};

void agent_send(struct agent *a, const struct msg *m); /* dropped where no link is in use */

void uplink_use(struct agent *a, struct link *l);  /* takes l; JOIN has been sent on it */
void uplink_join(struct agent *a, struct link *l); /* takes l, sends JOIN */
void uplink_drop(struct agent *a);                 /* the link in use */
int uplink_send_bye(struct agent *a, const char *why);
/* The own daemon sends its nodes to the daemon at addr, and this node leaves it. */
void uplink_give_way(struct agent *a, const char *addr);

void uplink_found(struct agent *a, struct link *l); /* by a locator: takes l, and is an event */
void uplink_join_found(struct agent *a);
void uplink_ask_found(struct agent *a);
void uplink_drop_found(struct agent *a);

void uplink_move(struct agent *a, bool gives_way); /* to the daemon that has just answered */
void uplink_drop_other(struct agent *a);           /* the same daemon's link */
void uplink_drop_others(struct agent *a);
bool uplink_asks(const struct agent *a); /* some daemon has still to answer */

#endif
