/* The phases of a job on one node, for --timeline: their names, and their form on the wire. Pure.
 *
 * An agent records when a phase begins and ends on its monotonic clock, and sends it as one text:
 *
 *   phase = name " " rank " " begin " " end " " value
 *
 * rank -1: the phase belongs to the node. begin and end are in ns; they are equal for an event
 * without duration. A new phase is a row of the table in phases.c. */
#ifndef DD_REPORT_PHASES_H
#define DD_REPORT_PHASES_H

#include <stdbool.h>
#include <stdint.h>

enum phase_kind {
    PHASE_BOOTSTRAP,   /* a started node fetches its command from the node that started it */
    PHASE_START,       /* ddrun reads its options and examines the machine */
    PHASE_DAEMON,      /* the leader's node starts ddrund */
    PHASE_RESOLVE,     /* the name of the leader's node becomes an address */
    PHASE_SEARCH,      /* attempts to connect fail, as ddrund does not listen yet */
    PHASE_CONNECT,     /* the node connects to ddrund by TCP */
    PHASE_KEY,         /* exchange of hello messages, to agree on the job's key */
    PHASE_TLS,         /* TLS handshake */
    PHASE_JOIN,        /* from JOIN to the first plan: waiting for other nodes */
    PHASE_PLAN,        /* from the plan to the fork of the first worker */
    PHASE_SPAWN,       /* from the first fork until all workers of the node execute their program */
    PHASE_STOP,        /* from the stop signal until no worker is left */
    PHASE_RESTART,     /* from the end of the last worker to the next plan: waiting for nodes */
    PHASE_FIRST_STORE, /* a worker has connected to the store; recorded by the daemon */
    PHASE_SPAWNED,     /* a worker was forked */
    PHASE_WORKER,      /* from the fork of a worker to its exit */
    PHASE_FIRST_OUTPUT, /* a worker has written its first output */
    PHASE_KIND_MAX
};

enum { PHASE_TEXT_MAX = 100 };

struct phase_row {
    const char *name;
    bool of_rank;      /* belongs to one worker, not to the node */
    bool instant;      /* has no duration */
    const char *value; /* name of phase.value in the timeline; NULL: unused, always 0 */
};
extern const struct phase_row phase_rows[PHASE_KIND_MAX];

struct phase {
    enum phase_kind kind;
    int rank; /* -1: the phase belongs to the node */
    int value;
    int64_t begin_ns, end_ns;
};

/* Maximum number of phases that a daemon accepts from a node with this many workers in a round. */
static inline unsigned phases_max(int workers)
{
    return 64 + 4 * (unsigned)workers;
}

/* Write the phase as text. */
void phase_format(char out[PHASE_TEXT_MAX], const struct phase *p);
/* Parse a text of a peer. -ENOENT: a phase of another version; -EPROTO: not a phase. */
int phase_parse(struct phase *ret, const char *text);

#endif
