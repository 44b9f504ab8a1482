/* Shared by locate_etcd.c (acting on the key in etcd) and locate_etcd_ask.c (requests to etcd and
 * replies). */
#ifndef DD_AGENT_LOCATE_ETCD_INNER_H
#define DD_AGENT_LOCATE_ETCD_INNER_H

#include "agent/locate.h"
#include "agent/locate_etcd.h"
#include "agent/locate_leader.h"
#include "agent/round_history.h"
#include "web/claim.h"
#include "web/client.h"
#include "web/entry.h"
#include "web/etcd.h"

enum { LOCATE_ETCD_REVOKE_MS = 1000 };

struct locate_etcd {
    const struct locate_etcd_cfg *cfg;
    struct locate *where;
    struct locate_leader *leader;
    const struct round_history *history;
    const struct round *round; /* the helper is not killed with the workers of this round */
    struct web *web;           /* NULL: no helper runs */
    struct event *timer;       /* next step of the claim; while `resting`: time to end the helper */
    struct claim claim;
    char *key, *token;
    char id[ENTRY_ID + 1];
    char secret[ENTRY_SECRET + 1]; /* secret of the job in etcd; "": the nodes share another key */
    int64_t lease;                 /* id of the lease; 0: none */
    size_t first;                  /* index of the URL to try first */
    enum etcd_call call;           /* the pending request, or the one to send after AUTH */
    bool authenticating, no_auth;
    bool fresh;    /* the token of AUTH has not been used yet */
    int listen_fd; /* bound for the claim, until the daemon gets the socket; -1: none */
    uint16_t port; /* port of listen_fd, or of the daemon of this node */
    struct entry seen;
    bool wanted;   /* this node's daemon waits for PROBE_RESULT */
    bool resting;  /* another node leads */
    bool over;     /* the job has ended, or the search has failed for good */
    bool revoking; /* the lease is being revoked */
    bool reported; /* the failure of etcd was reported to the user */
    char trouble[700];
};

/* locate_etcd.c */
bool locate_etcd_is_started(const struct locate_etcd *d);
void locate_etcd_step(struct locate_etcd *d, enum claim_event e, const struct claim_seen *seen);

/* locate_etcd_ask.c */
void locate_etcd_ask(struct locate_etcd *d, enum etcd_call call,
                     int64_t revision); /* a reply becomes a step of the claim */
void locate_etcd_revoke(struct locate_etcd *d,
                        web_done_f *done); /* revoke the lease, as the last request */
void locate_etcd_give_up(struct locate_etcd *d,
                         const char *why); /* only while there is no daemon */

#endif
