/* Election of the leader through one etcd key, whose name is the same on all nodes of a job. A
 * state machine without sockets and clock: its inputs are replies and events, its outputs requests
 * and actions. At most one request is pending.
 *
 * The key is attached to a lease that the leader keeps alive. It is written only if it does not
 * exist, or over exactly the revision that was read, so it names at most one leader at any time. A
 * leader that finds another node's entry stays leader only if its job has started. It then restores
 * its own entry if the other's job has not started or its own daemon has the higher epoch. */
#ifndef DD_WEB_CLAIM_H
#define DD_WEB_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

enum claim_event {
    CLAIM_BEGIN,      /* find the leader or become it */
    CLAIM_READ,       /* the key was read: `seen` of claim_step() */
    CLAIM_GRANTED,    /* a lease was granted */
    CLAIM_KEPT,       /* the lease was renewed */
    CLAIM_LEASE_GONE, /* the lease has expired; may also be the reply to a write */
    CLAIM_WON,        /* the key was written */
    CLAIM_BEATEN,     /* not written: another node has changed the key */
    CLAIM_FAILED,     /* no reply, or an unexpected one */
    CLAIM_TIME,       /* wait_ms has elapsed */
    CLAIM_CHANGED,    /* claim_set() was called */
    CLAIM_CHECK,      /* check now: a caller waits for the result */
    CLAIM_EVENTS,
};

enum claim_ask {
    CLAIM_ASK_NOTHING,
    CLAIM_ASK_READ,
    CLAIM_ASK_GRANT,
    CLAIM_ASK_KEEP,
    CLAIM_ASK_PUT
};
enum claim_do {
    CLAIM_DO_NOTHING,
    CLAIM_DO_HOST,   /* the key is ours: become leader and call claim_set() */
    CLAIM_DO_FOLLOW, /* connect to the leader that was read */
    CLAIM_DO_YIELD,  /* stop being leader in favour of the one that was read */
    CLAIM_DO_STAY,   /* remain leader: the key is ours or unknown, or the job has started */
};

/* The content of the key. */
struct claim_seen {
    bool there;
    bool mine;     /* written by this node, on its current lease */
    bool same;     /* `mine` is set, and the content is current */
    bool started;  /* a round of the writer's job has started */
    int64_t epoch; /* of the writer's daemon */
    int64_t revision;
};

struct claim_out {
    enum claim_ask ask;
    enum claim_do act;
    int64_t revision; /* for CLAIM_ASK_PUT: the revision to replace; 0: create the key */
    unsigned wait_ms; /* for CLAIM_ASK_NOTHING: delay until CLAIM_TIME; 0: none */
};

struct claim { /* initially all zero */
    bool hosting, started, lease;
    int64_t epoch;
    bool asked;       /* a reply is pending */
    bool again;       /* read again after the pending reply */
    bool check;       /* a caller waits for the result */
    int64_t followed; /* revision that is followed; 0: none */
    int64_t put_over; /* revision to write once the lease is granted */
    unsigned fails, beaten;
};

enum { CLAIM_TTL_S = 10, CLAIM_KEEP_MS = 3000, CLAIM_LOOK_MS = 1000 };

/* Set this node's role; the caller then sends CLAIM_CHANGED. */
void claim_set(struct claim *c, bool hosting, int64_t epoch, bool started);
/* seen: for CLAIM_READ only. */
struct claim_out claim_step(struct claim *c, enum claim_event e, const struct claim_seen *seen);

#endif
