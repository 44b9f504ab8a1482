/* An agent's link, before and after JOIN: its identity, its frames in and out, and the ids under
 * which the round machine knows the joined ones. */
#ifndef DD_DAEMON_SESSION_H
#define DD_DAEMON_SESSION_H

#include "base/strv.h"
#include "daemon/admission.h"
#include "daemon/report_collect.h"
#include "net/link.h"
#include "rdzv/msg.h"

#include <sys/queue.h>

enum { SESSION_SIGNALS = 2 }; /* SIGUSR1, SIGUSR2 */

struct session_set;

struct session {
    LIST_ENTRY(session) entry;
    struct session_set *set;
    struct link *link;
    int id;         /* of the round machine; -1 before JOIN */
    bool is_leader; /* of the daemon's own node */
    int64_t pid;    /* of its agent, as it reports */
    char name[256];
    struct net_addr *addrs; /* of its node, as it reports, and the link's */
    size_t naddrs;
    char *ports;                     /* that it holds for its workers (rdzv/ports.h); NULL: none */
    struct admission_node admission; /* admission.c */
    struct report_clock clock;       /* report_collect.c */
    uint64_t signal_ns[SESSION_SIGNALS]; /* signal_broadcast.c: last request; 0: never */
};

/* Callbacks may free the session. */
struct session_ops {
    void (*message)(void *arg, struct session *s, const struct msg *m);
    void (*malformed)(void *arg, struct session *s, const char *why); /* a control message */
    void (*exchange)(void *arg, struct session *s, const struct frame *f);
    void (*closed)(void *arg, struct session *s, bool clean, const char *why); /* by the peer */
    void (*gone)(void *arg, struct session *s); /* it is being freed; frees nothing itself */
    void *arg;
};

struct session_cfg {
    int capacity;          /* joined sessions at once */
    int64_t epoch;         /* for REFUSE */
    uint64_t heartbeat_ns; /* a peer that is silent for this long is lost */
    const struct dd_log *log;
    struct session_ops ops;
};

struct session_set {
    struct session_cfg cfg;
    LIST_HEAD(, session) sessions;
    int n;
    struct session *leader; /* NULL: not connected */
    struct session **by_id; /* [capacity] */
    int *free_ids;          /* stack of the ids that are free */
    int nfree;
};

int session_set_init(struct session_set *set, const struct session_cfg *cfg); /* 0 or -ENOMEM */
void session_set_done(struct session_set *set); /* frees all sessions; also after a failed init */

/* Takes link. NULL: no memory. */
struct session *session_new(struct session_set *set, struct link *link, bool is_leader);
void session_free(struct session *s);
void session_bye(struct session *s); /* frees it once all that was sent has been written */

struct session *session_of_admission(struct admission_node *n); /* the session that n is part of */
/* Gives it an id; -1: none is free. */
int session_take_id(struct session *s);
struct session *session_of_id(const struct session_set *set, int id); /* NULL: none */
struct session *session_of_addr(const struct session_set *set,
                                const struct net_addr *a);             /* joined */
int session_set_addrs(struct session *s, const struct dd_strv *addrs); /* 0 or -ENOMEM */
void session_set_ports(struct session *s, const char *ports);

/* A message that cannot be sent ends the link: the peer would wait for it forever. */
void session_send(struct session *s, const struct msg *m);
/* Logs, sends REFUSE and frees s. */
void session_refuse(struct session *s, const char *why);
/* Sends text as the answer to request `id` of ddctl, in pieces. -ENOBUFS: the link is too busy. */
enum { SESSION_ANSWER_MAX = 24 << 20 };
int session_answer(struct session *s, int64_t id, const char *text, size_t n, bool ends);

#endif
