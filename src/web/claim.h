/* Who is the host, by one key that all nodes of a job know: who claims it, who follows, who gives
 * way. A machine without sockets and clock: what was answered and what has happened comes in, what
 * to ask and what to do goes out. One question is under way at a time.
 *
 * The key hangs on a lease that its host keeps alive; it is written only where there is none, or in
 * the place of exactly that which was read. So there are never two hosts by the key. A host that
 * finds another's name there goes on only if its job has begun and the other's has not, or its
 * daemon is the later one (epoch); then it puts its own name back. */
#ifndef DD_WEB_CLAIM_H
#define DD_WEB_CLAIM_H

#include <stdbool.h>
#include <stdint.h>

enum claim_event {
    CLAIM_BEGIN,      /* look for the host, or be it */
    CLAIM_READ,       /* the key was read: claim_step()'s `seen` */
    CLAIM_GRANTED,    /* there is a lease */
    CLAIM_KEPT,       /* it lives on */
    CLAIM_LEASE_GONE, /* there is none any more; also the answer to a write */
    CLAIM_WON,        /* the key was written */
    CLAIM_BEATEN,     /* it was not: somebody else has changed it */
    CLAIM_FAILED,     /* no answer */
    CLAIM_TIME,       /* the wait is over */
    CLAIM_CHANGED,    /* what we are, by claim_set() */
    CLAIM_CHECK,      /* look now: somebody waits for it */
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
    CLAIM_DO_HOST,   /* the key is ours: be the host, and say so with claim_set() */
    CLAIM_DO_FOLLOW, /* connect to the one that was read */
    CLAIM_DO_YIELD,  /* stop being the host: the one that was read goes on */
    CLAIM_DO_STAY,   /* host, as before: the key says so, or nothing against it */
};

/* What the key says. */
struct claim_seen {
    bool there;
    bool mine;     /* written by us, and on the lease that we have */
    bool same;     /* mine, and it says what it should */
    bool started;  /* its job has begun */
    int64_t epoch; /* of its daemon */
    int64_t revision;
};

struct claim_out {
    enum claim_ask ask;
    enum claim_do act;
    int64_t revision; /* with CLAIM_ASK_PUT: in the place of this one; 0: of none */
    unsigned wait_ms; /* with CLAIM_ASK_NOTHING: CLAIM_TIME then; 0: none */
};

struct claim { /* all zero at first */
    bool hosting, started, lease;
    int64_t epoch;
    bool asked;       /* an answer is to come */
    bool again;       /* look once more when it has come */
    bool check;       /* somebody waits for a word */
    int64_t followed; /* the revision that is followed; 0: none */
    int64_t put_over; /* what a lease is being granted for */
    unsigned fails, beaten;
};

enum { CLAIM_TTL_S = 10, CLAIM_KEEP_MS = 3000, CLAIM_LOOK_MS = 1000 };

/* What we are from now on; CLAIM_CHANGED is the caller's. */
void claim_set(struct claim *c, bool hosting, int64_t epoch, bool started);
/* seen: with CLAIM_READ only. */
struct claim_out claim_step(struct claim *c, enum claim_event e, const struct claim_seen *seen);

#endif
