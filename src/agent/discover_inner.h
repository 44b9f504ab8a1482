/* Shared by discover.c (what the agent does by the key in etcd) and discover_ask.c (what etcd is
 * asked, and says). */
#ifndef DD_AGENT_DISCOVER_INNER_H
#define DD_AGENT_DISCOVER_INNER_H

#include "agent/discover.h"
#include "agent/inner.h"
#include "web/claim.h"
#include "web/client.h"
#include "web/entry.h"
#include "web/etcd.h"

enum { DISCOVER_LAST_WORD_MS = 1000 };

struct discover {
    struct agent *agent;
    struct web *web;     /* NULL: nothing is to be asked */
    struct event *timer; /* for the claim; or, where `resting`, to end the helper */
    struct claim claim;
    char *key, *token;
    char id[ENTRY_ID + 1];
    char secret[ENTRY_SECRET + 1]; /* "": the nodes have a key of their own */
    int64_t lease;                 /* 0: none */
    size_t first;                  /* of the URLs, which answered last */
    enum etcd_call call;           /* under way, or after AUTH */
    bool authenticating, no_auth;
    bool fresh;    /* what AUTH has said is not tried yet */
    int listen_fd; /* bound for the claim, until the daemon gets it; -1 */
    uint16_t port; /* where we listen */
    struct entry seen;
    bool begun;     /* our daemon has begun a round, without this node */
    bool wanted;    /* our daemon waits for a word */
    bool resting;   /* another node is the host */
    bool over;      /* the job, or all hope */
    bool last_word; /* etcd is told that the lease is over */
    bool told;      /* that etcd does not answer */
    char trouble[700];
};

/* discover.c */
bool discover_is_started(const struct agent *a);
void discover_step(struct discover *d, enum claim_event e, const struct claim_seen *seen);

/* discover_ask.c */
void discover_ask(struct discover *d, enum etcd_call call,
                  int64_t revision);                        /* the answer is a step */
void discover_revoke(struct discover *d, web_done_f *done); /* the lease; the last that is asked */
void discover_give_up(struct discover *d, const char *why); /* while there is no daemon yet */

#endif
