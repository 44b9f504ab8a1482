/* Find the user that owns a worker's connection. Workers do not authenticate, so the kernel of the
 * worker's machine is queried: directly on this machine, through the agent on other nodes. The
 * number of queries in flight to an agent is bounded, so a flood from its node cannot saturate its
 * link or CPU; each node has its own bound. */
#ifndef DD_DAEMON_ADMISSION_H
#define DD_DAEMON_ADMISSION_H

#include "base/err.h"
#include "base/log.h"
#include "net/addr.h"
#include "net/owner_queue.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

enum owner {
    OWNER_UNKNOWN,
    OWNER_PENDING, /* waiting for the reply of the node's agent or for the list of all sockets */
    OWNER_SELF,
    OWNER_OTHER
};

struct admission;
struct admission_node;

/* Part of the object that owns the connection. */
struct admission_query {
    TAILQ_ENTRY(admission_query) entry;
    struct admission_node *node; /* node whose agent is queried; NULL: none */
    int64_t id;                  /* 0: not yet sent */
    struct owner_query here;     /* query about a socket of this machine */
    struct net_addr ours, remote;
    uid_t uid;       /* the owner, if OWNER_OTHER and why is NULL */
    const char *why; /* reason for refusing the connection; NULL: uid is the reason */
    void (*answered)(struct admission_query *q, enum owner owner); /* may free the object */
};

/* The queries to one agent: part of its session. */
struct admission_node {
    TAILQ_HEAD(, admission_query) queries; /* oldest first */
    int nsent;                             /* without a reply yet */
};

struct admission_cfg {
    struct event_base *base;  /* borrowed */
    const struct dd_log *log; /* borrowed */
    /* Return the node with that address; NULL: none has joined. */
    struct admission_node *(*find_node)(void *arg, const struct net_addr *addr);
    /* Ask the node's agent for the owner of its socket `local`, which is connected to `remote`. */
    void (*ask)(void *arg, struct admission_node *n, int64_t id, const char *local,
                const char *remote);
    /* Called for the count-th refused connection; uid: its owner, NULL: unknown. */
    void (*refused)(void *arg, uint64_t count, const struct net_addr *from, const uid_t *uid,
                    const char *why);
    void *arg;
};

int admission_new(struct admission **ret, const struct admission_cfg *cfg, struct dd_err *err);
void admission_free(struct admission *a);

/* Start a query. OWNER_PENDING: q->answered is called later. */
enum owner admission_ask(struct admission *a, struct admission_query *q, int fd);
/* Cancel the query; does nothing if it was never started. */
void admission_forget(struct admission_query *q);
/* Count and log a refusal. why NULL: use q->why. */
void admission_refuse(struct admission *a, const struct admission_query *q, const char *why);

void admission_node_init(struct admission_node *n);
void admission_node_gone(struct admission_node *n);
/* Take the agent's reply to query `id`. */
void admission_reply(struct admission *a, struct admission_node *n, int64_t id, bool is_ours);

#endif
