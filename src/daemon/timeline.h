/* The timeline of --timeline: the journal and the phases of all nodes as trace events, on one
 * clock. docs/timeline.md describes the file. Nothing is written before the first round, so that a
 * daemon that redirects its agents to another one overwrites no file. */
#ifndef DD_DAEMON_TIMELINE_H
#define DD_DAEMON_TIMELINE_H

#include "base/err.h"
#include "base/log.h"
#include "daemon/journal.h"
#include "daemon/report_collect.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct msg_join;   /* rdzv/msg.h */
struct msg_phases; /* rdzv/msg.h */
struct timeline;

/* Part of a session: the node's state in the timeline. */
struct timeline_peer {
    int pid; /* of the node in the file; 0: the node has none, and its phases are ignored */
    uint64_t asked_ns; /* time of the request */
    int64_t behind_ns; /* the daemon's clock minus the node's */
    bool same_clock;   /* behind_ns is 0 */
    bool answered;     /* behind_ns is known */
    int workers;
    int round;        /* round that left and first_store are about */
    unsigned left;    /* number of phases still accepted in this round */
    bool first_store; /* a worker of this node has used the store in this round */
};

struct timeline_cfg { /* all pointers are borrowed until timeline_free() */
    struct event_base *base;
    const char *path, *job_id;
    uint64_t start_ns; /* start of the leader's ddrun; 0: now */
    const struct dd_log *log;
};

/* Also starts the child that writes the file: call before confine(). */
int timeline_new(struct timeline **ret, struct journal *j, const struct timeline_cfg *cfg,
                 struct dd_err *err);
/* NULL does nothing; the journal must not be used afterwards. */
void timeline_free(struct timeline *t);

/* Add the node of an agent that joins and is about to receive the request for its phases.
 * same_clock: the agent runs on the daemon's machine. */
void timeline_add_peer(struct timeline *t, struct timeline_peer *p, const struct msg_join *m,
                       bool same_clock);
/* Record an agent's phases. quickest: clock offset estimated from its fastest message. */
void timeline_take(struct timeline *t, struct timeline_peer *p, const struct report_clock *quickest,
                   const struct msg_phases *m);
/* Record that a worker of this node (NULL: unknown) uses the store: the first use in a round is an
 * event. */
void timeline_store_used(struct timeline *t, struct timeline_peer *p);

#endif
