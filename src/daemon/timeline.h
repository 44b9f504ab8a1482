/* The timeline of --timeline: the journal and the phases of all nodes as trace events, on one
 * clock. docs/timeline.md describes the file. Nothing is written before the first round, so that a
 * daemon that makes way for another one overwrites no file. */
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
struct msg_phases; /* the same */
struct timeline;

/* What the timeline keeps of a session. */
struct timeline_peer {
    int pid;           /* in the file; 0: not asked */
    uint64_t asked_ns; /* when it was asked for its phases */
    int64_t behind_ns; /* its clock against the daemon's */
    bool same_clock;   /* behind_ns is 0 */
    bool answered;     /* behind_ns is known */
    int workers;
    int round;        /* of the next two */
    unsigned left;    /* phases that it may still send in this round */
    bool first_store; /* a worker of it has used the store in this round */
};

struct timeline_cfg { /* all pointers are borrowed until timeline_free() */
    struct event_base *base;
    const char *path, *job_id;
    uint64_t start_ns; /* start of the leader's ddrun; 0: now */
    const struct dd_log *log;
};

/* Starts the child that writes the file: call before confine(). */
int timeline_new(struct timeline **ret, struct journal *j, const struct timeline_cfg *cfg,
                 struct dd_err *err);
void timeline_free(struct timeline *t); /* NULL does nothing; the journal must not be used after */

/* An agent joins and is being asked for its phases. same_clock: it runs on the daemon's machine. */
void timeline_add_peer(struct timeline *t, struct timeline_peer *p, const struct msg_join *m,
                       bool same_clock);
/* quickest: the offset of the agent's clock that its quickest message allows. */
void timeline_take(struct timeline *t, struct timeline_peer *p, const struct report_clock *quickest,
                   const struct msg_phases *m);
/* A worker of this node (NULL: unknown) uses the store; the first one of a round is an event. */
void timeline_store_used(struct timeline *t, struct timeline_peer *p);

#endif
