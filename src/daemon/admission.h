/* Whose a worker's connection is. Workers prove nothing, so the kernel of their machine is asked:
 * this one directly, another one through its agent. An agent has a bounded number of questions at a
 * time, so that a flood from its node neither fills its link nor takes all of its time; each node
 * has questions of its own. */
#ifndef DD_DAEMON_ADMISSION_H
#define DD_DAEMON_ADMISSION_H

#include "base/err.h"
#include "base/log.h"
#include "net/addr.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

enum owner {
    OWNER_UNKNOWN,
    OWNER_PENDING, /* the agent of its node has been asked */
    OWNER_SELF,
    OWNER_OTHER
};

struct admission;
struct admission_node;

/* Part of the object that owns the connection. */
struct admission_query {
    TAILQ_ENTRY(admission_query) entry;
    struct admission_node *node; /* whose agent is asked; NULL: none */
    int64_t id;                  /* 0: not sent yet */
    struct net_addr ours, remote;
    uid_t uid;       /* of OWNER_OTHER */
    const char *why; /* the connection is not to be admitted; NULL: that uid */
    void (*answered)(struct admission_query *q, enum owner owner); /* may free the object */
};

/* The queries to one agent: part of its session. */
struct admission_node {
    TAILQ_HEAD(, admission_query) queries; /* the oldest first */
    int nsent;                             /* without a reply */
};

struct admission_cfg {
    const struct dd_log *log; /* borrowed */
    /* The node with that address; NULL: none has joined. */
    struct admission_node *(*find_node)(void *arg, const struct net_addr *addr);
    /* Asks the node's agent for the owner of its socket `local`, which is connected to `remote`. */
    void (*ask)(void *arg, struct admission_node *n, int64_t id, const char *local,
                const char *remote);
    void (*refused)(void *arg, uint64_t count, const struct net_addr *from, const uid_t *uid,
                    const char *why);
    void *arg;
};

int admission_new(struct admission **ret, const struct admission_cfg *cfg, struct dd_err *err);
void admission_free(struct admission *a);

/* OWNER_PENDING: q->answered is called later. */
enum owner admission_ask(struct admission *a, struct admission_query *q, int fd);
/* No answer is wanted; also when none was asked for. */
void admission_forget(struct admission_query *q);
/* Counts and logs a refusal; why NULL: q->why. */
void admission_refuse(struct admission *a, const struct admission_query *q, const char *why);

void admission_node_init(struct admission_node *n);
void admission_node_gone(struct admission_node *n);
/* The agent's reply to query `id`. */
void admission_reply(struct admission *a, struct admission_node *n, int64_t id, bool is_ours);

#endif
