/* Shared by the files of this room only. */
#ifndef DD_DAEMON_INNER_H
#define DD_DAEMON_INNER_H

#include "daemon/report_collect.h"
#include "daemon/daemon.h"
#include "daemon/demux.h"
#include "net/addr.h"
#include "net/link.h"
#include "net/unproven.h"
#include "rdzv/machine.h"
#include "rdzv/msg.h"

#include <event2/event.h>
#include <sys/queue.h>

enum { ANNOUNCED = 2 }; /* SIGUSR1, SIGUSR2 */

/* Of this round, to the workers. */
struct told {
    int events;
    uint64_t signal_ns[ANNOUNCED];
    bool stop;
};

/* Whose a connection is: part of the object that owns it. */
enum owner { OWNER_UNKNOWN, OWNER_ASKED, OWNER_SELF, OWNER_OTHER };
struct question {
    TAILQ_ENTRY(question) entry;
    struct guest *guest; /* whose agent is asked; NULL: none */
    int64_t id;          /* 0: has not been sent yet */
    struct net_addr ours, remote;
    uid_t uid;       /* of another user of this machine */
    const char *why; /* it is not to be admitted; NULL: that uid */
    void (*answered)(struct question *q, enum owner owner); /* may free the object */
};
TAILQ_HEAD(question_list, question);

/* An agent's link, before and after it has joined. */
struct guest {
    LIST_ENTRY(guest) entry;
    struct daemon *daemon;
    struct link *link;
    int id; /* of the round machine; -1 before JOIN */
    bool is_host;
    int64_t pid; /* of its agent, as it says */
    char name[256];
    struct net_addr *addrs; /* of its machine, as it says */
    size_t naddrs;
    char *ports;                    /* that it holds for its workers (rdzv/ports.h); NULL: none */
    struct question_list questions; /* the oldest first */
    int nasked;                     /* questions without a reply */
    struct account_clock clock;
    uint64_t asked_ns[ANNOUNCED]; /* for such a signal to all; 0: never */
};

LIST_HEAD(guest_list, guest);
TAILQ_HEAD(accept_list, accepting);

struct daemon {
    struct daemon_cfg cfg;
    struct event_base *base;
    struct door *door;
    struct store_server *store;
    struct rdzv *machine; /* NULL when standing */
    struct guest_list guests;
    struct guest **by_id; /* [capacity] */
    int capacity;         /* agents at once */
    int *free_ids;        /* stack of ids that nobody has */
    int nfree;
    int nguests;
    struct accept_list accepting; /* the oldest first */
    struct unproven_set unproven;
    struct link_shared shared;
    struct admission *admission;
    struct account *account; /* for the report; NULL when standing */
    struct events *events;   /* event_log.c; NULL: none yet */
    struct notify *notify;   /* notify.c; NULL: nobody is to be told, or nothing yet */
    uint64_t announced_ns[ANNOUNCED];
    struct exchange *exchange; /* NULL: none yet in this round */
    int exchange_round;
    struct told told;
    uint64_t links_refused; /* callers without this job's key */
    char token[33];         /* random, for PLAN */
    int texts_round;        /* the round that these two are of, the same for all nodes; -1: none */
    char *sizes_text, *members_text, *ports_text;
    struct event *progress, *timer, *stop, *end;
    uint64_t start_ns;
    bool started;       /* a round has begun, or the time for it is over: nobody else will come */
    bool lost;          /* a node, in this round */
    bool asked;         /* to stop */
    bool left;          /* finished, and all that were here have left */
    bool over;          /* on_over has been called */
    char elsewhere[64]; /* the daemon that took over, and everybody with it; "" */
};

/* session.c */
int guests_add_host(struct daemon *d, int fd, struct dd_err *err);
void guests_run_actions(struct daemon *d); /* what the machine wants done */
void guest_send(struct guest *g, const struct msg *m);
struct guest *guests_find_addr(struct daemon *d,
                               const struct net_addr *a); /* joined, of that machine */
void guests_free(struct daemon *d);

void guest_new(struct daemon *d, struct link *link,
               bool is_host); /* takes link: somebody of this job */

/* handshake.c */
void guests_accept(struct daemon *d, int fd,
                   bool foreign); /* takes fd, whose first byte is that of a hello */
void guests_accept_end(struct daemon *d);

/* plan_cache.c */
void guest_take_ports(struct guest *g, const char *ports);
char *guests_ports_text(struct daemon *d,
                        const struct plan *p); /* for PLAN; free(); NULL: no memory */

/* exchange_relay.c */
void guest_take_exchange(struct guest *g, const struct frame *f);
void guests_free_exchange(struct daemon *d);

/* event_log.c: what has happened, for ddctl */
enum event_kind {
    EVENT_JOIN,
    EVENT_LEAVE,
    EVENT_ROUND,
    EVENT_STARTED,
    EVENT_EXIT,
    EVENT_STOP,
    EVENT_SIGNAL,
    EVENT_DRAIN,
    EVENT_REFUSED,
    EVENT_FINISH
};
struct happened {
    enum event_kind kind;
    const char *node, *text;        /* NULL: there is none */
    const struct net_addr *address; /* of the other side; NULL or len 0: none */
    const uid_t *uid;               /* NULL: not known */
    int round, rank, code, signal, nodes, workers, count; /* those that the kind has */
};
void events_add(struct daemon *d, const struct happened *h);
/* The count-th connection that was refused, for `why`. Of many only the 1st, 2nd, 4th, 8th … become
 * events. */
void events_refused(struct daemon *d, uint64_t count, const struct net_addr *from, const uid_t *uid,
                    const char *why);
void events_follow(struct guest *g, int64_t id, bool follow); /* answers with all there have been */
void events_exits(const struct daemon *d, int round,
                  struct dd_buf *out); /* objects with commas between them */
void events_forget(struct daemon *d, const struct guest *g,
                   int64_t id); /* -1: whatever it follows */
void events_free(struct daemon *d);
struct json_t *events_text(const char *text); /* for JSON: cut, and made UTF-8 */

/* notify.c: the same, for a web hook */
void notify_add(struct daemon *d, const struct happened *h, struct json_t *event);
bool notify_waits(struct daemon *d); /* the end is near: true, on_end comes again soon */
void notify_free(struct daemon *d);

/* ctl_requests.c: what ddctl asks, through the agent of its node */
void control_ask(struct guest *g, const struct msg_ctl_request *m);
int control_answer(struct guest *g, int64_t id, const char *text, size_t n,
                   bool ends); /* in pieces */

/* signal_broadcast.c */
bool guests_announce(
    struct guest *from, int sig,
    bool end_near); /* to the workers of all nodes, once; false: it was just done */

/* worker_events.c: to the workers, through the store of the round */
void tell_signal(struct daemon *d, int sig);
void tell_stop(struct daemon *d, int sig); /* once a round */
void tell_new_round(struct daemon *d);

/* admission.c: a worker's connection is answered once its machine has said whose it is */
int admission_new(struct admission **ret, struct daemon *d, struct dd_err *err);
enum owner admission_ask(struct admission *a, struct question *q,
                         int fd);          /* OWNER_ASKED: q->answered comes later */
void admission_forget(struct question *q); /* no answer is wanted; also when nothing was asked */
void admission_refuse(struct admission *a, const struct question *q,
                      const char *why); /* counts, and logs; why NULL: q's */
void admission_reply(struct admission *a, struct guest *g, const struct msg_whois_reply *m);
void admission_guest_gone(struct guest *g);
void admission_free(struct admission *a);

/* daemon.c */
void daemon_over(struct daemon *d, int code); /* now, whoever is still here */
void daemon_handed_over(struct daemon *d);    /* nobody is to join any more, nothing to begin */
void daemon_step(struct daemon *d, const struct rdzv_event *e);

#endif
