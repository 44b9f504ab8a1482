/* Shared by locate_etcd.c (what the agent does by the key in etcd) and locate_etcd_ask.c (what etcd
 * is asked, and says). */
#ifndef DD_AGENT_LOCATE_ETCD_INNER_H
#define DD_AGENT_LOCATE_ETCD_INNER_H

#include "agent/locate_etcd.h"
#include "agent/inner.h"
#include "web/claim.h"
#include "web/client.h"
#include "web/entry.h"
#include "web/etcd.h"

enum { LOCATE_ETCD_LAST_WORD_MS = 1000 };

struct locate_etcd {
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
    bool wanted;    /* our daemon waits for a word */
    bool resting;   /* another node is the host */
    bool over;      /* the job, or all hope */
    bool last_word; /* etcd is told that the lease is over */
    bool told;      /* that etcd does not answer */
    char trouble[700];
};

/* locate_etcd.c */
bool locate_etcd_is_started(const struct agent *a);
void locate_etcd_step(struct locate_etcd *d, enum claim_event e, const struct claim_seen *seen);

/* locate_etcd_ask.c */
void locate_etcd_ask(struct locate_etcd *d, enum etcd_call call,
                     int64_t revision); /* the answer is a step */
void locate_etcd_revoke(struct locate_etcd *d,
                        web_done_f *done); /* the lease; the last that is asked */
void locate_etcd_give_up(struct locate_etcd *d, const char *why); /* while there is no daemon yet */

#endif
