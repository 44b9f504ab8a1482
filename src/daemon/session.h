/* A session: an agent's link before and after JOIN, with the agent's identity, its frames in and
 * out, and the id that the round machine uses once the agent has joined. */
#ifndef DD_DAEMON_SESSION_H
#define DD_DAEMON_SESSION_H

#include "base/strv.h"
#include "daemon/admission.h"
#include "daemon/report_collect.h"
#include "daemon/timeline.h"
#include "net/addr_table.h"
#include "net/link.h"
#include "rdzv/msg.h"

#include <sys/queue.h>

enum { SESSION_SIGNALS = 2 }; /* SIGUSR1, SIGUSR2 */

struct session_set;
struct store_carrier;

/* An address of a joined session, in the set's table. */
struct session_addr {
    struct addr_entry entry; /* first: addr_table_find() returns it */
    struct session *session;
};

struct session {
    LIST_ENTRY(session) entry;
    struct session_set *set;
    struct link *link;
    int id;          /* in the round machine; -1 before JOIN */
    bool shows_wait; /* the agent's status line shows what the job waits for */
    bool is_leader;  /* the agent on the daemon's own node */
    int64_t pid;     /* process id of the agent, as it reports */
    char name[256];
    struct session_addr *addrs; /* of the node: those that its agent reports, and the link's peer */
    size_t naddrs;
    int64_t idle;   /* 1 + the round in which the node's workers are idle; 0: they are not idle */
    bool stopped;   /* signals have stopped all workers of the node */
    char *ports;    /* ports held for the node's workers (rdzv/ports.h); NULL: none */
    char *warnings; /* the last that the agent has sent, one a line; NULL: none */
    struct admission_node admission;     /* admission.c */
    struct store_carrier *carrier;       /* of the node's relay; owned by dispatch.c; NULL: none */
    struct report_clock clock;           /* report_collect.c */
    struct timeline_peer timeline;       /* timeline.c */
    uint64_t signal_ns[SESSION_SIGNALS]; /* signal_broadcast.c: last request; 0: never */
};

/* All callbacks but gone() may free the session. */
struct session_ops {
    void (*message)(void *arg, struct session *s, const struct msg *m);
    void (*malformed)(void *arg, struct session *s,
                      const char *why); /* a control message that cannot be parsed */
    void (*exchange)(void *arg, struct session *s, const struct frame *f);
    void (*store)(void *arg, struct session *s, const struct frame *f);
    void (*closed)(void *arg, struct session *s, bool clean,
                   const char *why); /* the link was closed by the peer, or lost */
    void (*gone)(void *arg,
                 struct session *s); /* s is about to be freed; the callback must not free s */
    void *arg;
};

struct session_cfg {
    int capacity;          /* maximum number of joined sessions */
    int64_t epoch;         /* sent with REFUSE */
    uint64_t heartbeat_ns; /* silence after which a peer is lost */
    const struct dd_log *log;
    struct session_ops ops;
};

struct session_set {
    struct session_cfg cfg;
    LIST_HEAD(, session) sessions;
    int n;
    struct session *leader;  /* NULL: not connected */
    struct session **by_id;  /* [capacity] */
    struct addr_table addrs; /* of joined sessions */
    int *free_ids;           /* stack of unused ids */
    int nfree;
};

int session_set_init(struct session_set *set, const struct session_cfg *cfg); /* 0 or -ENOMEM */
void session_set_done(
    struct session_set *set); /* frees all sessions; also allowed after a failed init */

/* Make a session; takes link. NULL: out of memory. */
struct session *session_new(struct session_set *set, struct link *link, bool is_leader);
void session_free(struct session *s);
void session_bye(struct session *s); /* sends BYE, and frees s; the link is freed by link_bye() */

struct session *session_of_admission(struct admission_node *n); /* the session that contains n */
/* Assign an id; -1: none is free. */
int session_take_id(struct session *s);
struct session *session_of_id(const struct session_set *set, int id); /* NULL: none */
/* Return a joined session whose node has this address; NULL: none. */
struct session *session_of_addr(const struct session_set *set, const struct net_addr *a);
/* Set the addresses of a session that joins; once. 0 or -ENOMEM. */
int session_set_addrs(struct session *s, const struct dd_strv *addrs);
void session_set_ports(struct session *s, const char *ports);
enum { SESSION_WARNINGS_MAX = 32 };
void session_set_warnings(struct session *s, const char *warnings);
bool session_has_warning(const struct session *s, const char *warning);

/* Send a message. A failure ends the link, because the peer would wait for the message forever. */
void session_send(struct session *s, const struct msg *m);
/* Log the refusal, send REFUSE and free s. */
void session_refuse(struct session *s, const char *why);
enum { SESSION_ANSWER_MAX = 24 << 20 /* bytes of an answer */ };
/* Send text in parts as the answer to request `id` of ddctl. 0; -ENOBUFS: too much is queued on the
 * link; or another error of link_send(). ends: the text is the last part of the answer. */
int session_answer(struct session *s, int64_t id, const char *text, size_t n, bool ends);

#endif
