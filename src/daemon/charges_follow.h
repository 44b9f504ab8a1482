/* Sends the charges of nodes to the agent of the daemon's node, which keeps them for the next run
 * of a job that is requeued. */
#ifndef DD_DAEMON_CHARGES_FOLLOW_H
#define DD_DAEMON_CHARGES_FOLLOW_H

#include "daemon/journal.h"
#include "daemon/session.h"
#include "rdzv/machine.h"

struct charges_follow {
    struct journal_subscriber subscriber;
    const struct rdzv *machine; /* borrowed */
    struct session *to;         /* NULL: none */
    int64_t id;                 /* of the request of `to` */
};

/* Subscribe to the journal, which borrows f as long as the journal exists. */
void charges_follow_init(struct charges_follow *f, struct journal *j, const struct rdzv *machine);
/* Send the charges to s, if there are any: now, at each charge, and when a round starts. A later
 * call replaces s. */
void charges_follow_start(struct charges_follow *f, struct session *s, int64_t id);
void charges_follow_forget(struct charges_follow *f, const struct session *s); /* s ends */

#endif
