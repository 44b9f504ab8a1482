/* --watch-nodes: the leader queries the scheduler at intervals, by one command, for the nodes of
 * the job that are out of service, and reports them to the daemon. A failed command has no effect.
 */
#ifndef DD_AGENT_NODE_WATCH_H
#define DD_AGENT_NODE_WATCH_H

#include "base/err.h"

#include <stdint.h>

struct agent_loop;
struct node_watch;
struct round;
struct uplink;

struct node_watch_parts {
    struct agent_loop *loop;
    struct uplink *uplink;
    const struct round *round; /* commands are not killed with the workers of this round */
};

/* every_ns 0: never. */
int node_watch_new(struct node_watch **ret, const struct node_watch_parts *parts,
                   uint64_t every_ns);
/* Call on the leader. */
int node_watch_start(struct node_watch *w, struct dd_err *err);
void node_watch_round(const struct node_watch *w); /* call when a round has begun on this node */
void node_watch_stop(struct node_watch *w);        /* call when another node leads */
void node_watch_free(struct node_watch *w);        /* NULL is fine */

#endif
