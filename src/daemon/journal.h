/* The journal: events of a job. Each event is published once, to all subscribers, such as the
 * report, the log that ddctl reads, and the web hook. No I/O. */
#ifndef DD_DAEMON_JOURNAL_H
#define DD_DAEMON_JOURNAL_H

#include "net/addr.h"
#include "rdzv/machine.h"
#include "report/report.h"

#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

enum journal_kind {
    JOURNAL_JOIN,
    JOURNAL_LEAVE,
    JOURNAL_ROUND,
    JOURNAL_STARTED,
    JOURNAL_EXIT,
    JOURNAL_STOP,
    JOURNAL_SIGNAL,
    JOURNAL_EXCLUDE, /* the node gets no part in further rounds */
    JOURNAL_REFUSED,
    JOURNAL_WARNING,        /* a node reports a problem that does not exclude it: of a health check,
                               --collect or a CUDA core dump */
    JOURNAL_STRAGGLER,      /* a worker of a node holds up the others */
    JOURNAL_STRAGGLER_OVER, /* no worker of the node holds up the others any more */
    JOURNAL_MARK,           /* the scheduler takes the node out of service */
    JOURNAL_MARK_END,       /* the scheduler no longer takes the node out of service */
    JOURNAL_CHARGE,         /* the first failure of a round is charged to a node */
    JOURNAL_FINISH,
    /* Not shown to users: */
    JOURNAL_NODE_DONE, /* all workers of a node have ended */
    JOURNAL_STACKS,    /* the stacks of all workers have been read */
    JOURNAL_STOPPING,  /* the workers of a round are being stopped */
    JOURNAL_KIND_MAX
};

struct stacks; /* report/stacks.h */

/* All pointers are valid only during the call. */
struct journal_event {
    enum journal_kind kind;
    uint64_t now_ns, real_ns;       /* set by journal_publish(): monotonic, wall-clock */
    const char *node, *text;        /* NULL: none */
    const struct net_addr *address; /* of the peer; NULL or len 0: none */
    const uid_t *uid;               /* NULL: unknown */
    int round, rank, code, signal, nodes, workers, count; /* set for the kinds that have them */
    const struct report_exit *exit;                       /* EXIT; NULL: the exit is no failure */
    bool by_itself;                 /* EXIT: no stop had been requested when the message arrived */
    const struct report_ends *ends; /* NODE_DONE */
    struct stacks *stacks;          /* STACKS: a subscriber may take them */
    const char *verdict;            /* FINISH: as of report_verdict_set(); NULL or "": none */
    const struct rdzv_unfit *unfit; /* FINISH: the node that has ended the job; NULL: none */
};

/* Part of the object that subscribes. */
struct journal_subscriber {
    STAILQ_ENTRY(journal_subscriber) entry;
    void (*on_event)(void *arg, const struct journal_event *e);
    void *arg;
};

struct journal {
    STAILQ_HEAD(, journal_subscriber) subscribers;
};

void journal_init(struct journal *j);
/* Append s to the subscribers; s must live until the journal is no longer used. */
void journal_subscribe(struct journal *j, struct journal_subscriber *s);
void journal_publish(struct journal *j, const struct journal_event *e);
/* Publish the 1st, 2nd, 4th, 8th … of `count` refused connections. */
void journal_refused(struct journal *j, uint64_t count, const struct net_addr *from,
                     const uid_t *uid, const char *why);

/* Return the event as users see it (docs/protocol/control-1.md), with wall-clock time. NULL: out of
 * memory, or a kind that is not shown. The caller owns the reference. */
struct json_t *journal_json(const struct journal_event *e);
/* Return a peer's text as a JSON string, truncated and converted to valid UTF-8. */
struct json_t *journal_json_text(const char *text);

#endif
