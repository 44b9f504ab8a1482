/* Find the owners of the sockets at the other end of many TCP connections, without blocking the
 * event loop.
 *
 * A kernel with tcp_diag answers at once. Otherwise /proc/net/tcp is the only source: a list with a
 * line for each socket of the network namespace, of which any user may open hundreds of thousands.
 * So one pass over the list serves all queries that wait when the pass begins. A later query waits
 * for the next pass, since a line that was read before a connection existed is not about that
 * connection (net/peer_uid.h). The list is read in steps of about two milliseconds, and other
 * events have as much time between two steps as a step took. */
#ifndef DD_NET_OWNER_QUEUE_H
#define DD_NET_OWNER_QUEUE_H

#include "net/peer_text.h"
#include "net/peer_uid.h"

#include <sys/queue.h>

struct event_base;
struct owner_queue;

/* Part of the object that owns the connection. */
struct owner_query {
    TAILQ_ENTRY(owner_query) entry;
    struct owner_queue *queue; /* NULL: the query does not wait */
    bool sought;               /* in the list that is being read */
    struct net_addr local, remote;
    struct peer_line line;
    /* rc and uid as of net_peer_own(). May free the object, but not the queue. */
    void (*answered)(struct owner_query *q, int rc, uid_t uid);
};

/* base and peer are borrowed. 0 or -ENOMEM. */
int owner_queue_new(struct owner_queue **ret, struct event_base *base, struct net_peer *peer);
void owner_queue_free(struct owner_queue *s); /* no query may wait; NULL does nothing */

/* As net_peer_own(), but -EINPROGRESS: q->answered() is called later; -ENOMEM. The caller sets
 * q->answered, this function the other fields. */
int owner_queue_ask(struct owner_queue *s, struct owner_query *q, const struct net_addr *local,
                    const struct net_addr *remote, uid_t *ret_uid);
/* Cancel the query; does nothing if it does not wait. */
void owner_query_forget(struct owner_query *q);

#endif
