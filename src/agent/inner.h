/* Shared by the files of this room only. */
#ifndef DD_AGENT_INNER_H
#define DD_AGENT_INNER_H

#include "agent/agent.h"
#include "agent/agent_machine.h"
#include "agent/requeue.h"
#include "agent/round.h"
#include "agent/uplink.h"
#include "net/link.h"
#include "net/peer.h"
#include "rdzv/elect.h"
#include "rdzv/msg.h"
#include "rdzv/plan.h"
#include "rdzv/restart_ages.h"
#include "worker/child_watch.h"
#include "worker/group.h"

#include <event2/event.h>
#include <sys/types.h>

/* The daemon of this node, while it has one (leader.c). */
struct leader {
    struct net_key key;
    bool has_key; /* that others may have found in the home folder */
    pid_t daemon; /* ddrund, when it lives */
    struct child_watch end;
};

/* What is kept of the rounds, for the daemon after this one (round_history.c). */
struct round_history {
    char *members; /* of the last round that this node has started; NULL: none (rdzv/members.h) */
    struct rdzv_members last; /* the same */
    char *committed;          /* of the last one that all its nodes had started */
    struct dd_strv
        addrs; /* of the first nodes of that round, in node rank order; "": plan.master_addr */
    uint64_t ages_ms[RESTART_AGES_MAX]; /* how long ago the last restarts were, at ages_at_ns */
    int nages;
    uint64_t ages_at_ns;
};

/* What came to this process, and what it meant (signals.c). */
struct signals {
    int fd;
    struct event *ev;
    struct signal_news *news;
    char why[256];       /* for the next request to stop; "": a signal to this process */
    bool scheduler_ends; /* it was the scheduler's */
    bool end_stop;       /* it was ours, since the allocation ends */
};

/* The locators (locate_*.c): each finds a daemon in a way of its own. What one finds goes to
 * uplink_found(); AM_LEAD, AM_ELSEWHERE and AM_FAILED are their other outcomes. */
struct locate_leader {
    struct link_find *find; /* NULL: does not run */
    struct event *progress; /* reports to the user */
    /* How finding the leader's address goes, while `find` does not run yet; lent; NULL: known. */
    const char *(*status)(const struct agent *a);
};

struct locate_peers {
    struct link_look *look; /* NULL: does not run, or waits for answers */
    bool asking;
    size_t next; /* of a node that does not lead: the first node to ask */
};

struct locate_members {
    struct link_find *finds[RDZV_SUCCESSORS];
    int n;
};

struct agent {
    const struct agent_cfg *cfg;
    struct event_base *base;
    struct agent_machine machine;
    struct am_cfg machine_cfg;
    bool acting;         /* the machine's actions are being carried out */
    struct event *timer; /* the machine's */
    void (*step)(struct agent *a, struct am_event e);
    char why[LINK_WHY_MAX + 100]; /* of the last event, for a report */
    const struct msg *message;    /* being handled */
    struct uplink uplink;
    struct locate_leader locate_leader;
    struct locate_peers locate_peers;
    struct locate_members locate_members;
    struct locate_etcd *locate_etcd; /* NULL: not through etcd, or not yet */
    struct locate_local
        *locate_local;           /* locate_local.c; NULL: the port was free, or is another node's */
    struct net_key_input key_in; /* with the job's name filled in */
    struct net_peer *peer;
    struct leader leader;
    struct round_history history;
    struct signals signals;
    struct event *stopping;
    struct event *timeout;   /* of --timeout; NULL: not asked for, or another node is the host */
    struct endtime *endtime; /* endtime.c; NULL: not asked for, or not the host */
    struct round *round;
    struct requeue *requeue; /* requeue.c; NULL: nothing to do */
    struct health *health;   /* health_check.c */
    struct control *control; /* control.c; NULL: nobody can ask */
};

/* agent_event.c: an event of the agent's machine, and why it happens, for a report. */
void agent_step(struct agent *a, struct am_event e);
__attribute__((format(printf, 2, 3))) void agent_because(struct agent *a, const char *fmt, ...);

/* locate.c: where daemons of this job listen: the user's port alone; else those of the scheduler
 * and then elected ones. *ret_near: so many that any daemon may have; the first one may have gone
 * on to the others. Returns how many there are. */
enum { LOCATE_PORTS = ALLOC_MAX_PORTS + ELECT_WALK };
size_t locate_ports(const struct agent *a, uint16_t out[LOCATE_PORTS], size_t *ret_near);
void locate_find_cfg(struct agent *a, struct link_find_cfg *ret,
                     uint16_t ports[LOCATE_PORTS]); /* both are lent to it */

/* A socket of this node that listens on one of these ports, or < 0. */
int locate_bind(struct agent *a, uint16_t *ret_port, struct dd_err *err);

/* locate_leader.c: addr NULL: the first node's */
int locate_leader_new(struct agent *a);
int locate_leader_start(struct agent *a, const char *addr, struct dd_err *err);
/* Reports progress from now on; status: see struct locate_leader. */
void locate_leader_begin(struct agent *a, const char *(*status)(const struct agent *a));
int locate_leader_connect(struct agent *a, const struct link_find_cfg *cfg, struct dd_err *err);
const char *locate_leader_status(struct agent *a); /* lent; NULL: nothing is sought */
void locate_leader_stop(struct agent *a);
void locate_leader_free(struct agent *a);

/* locate_peers.c: one look at all nodes; AM_PEERS_PROBED comes of it */
bool locate_peers_possible(const struct agent *a);
void locate_peers_start(struct agent *a);
void locate_peers_check(struct agent *a); /* a daemon that was asked has answered */
void locate_peers_stop(struct agent *a);

/* locate_members.c */
void locate_members_start(struct agent *a);
void locate_members_stop(struct agent *a);

/* leader.c */
int leader_start(struct agent *a, struct dd_err *err); /* starts it, and joins it */
void leader_stop(struct agent *a); /* ends ddrund, if it lives, and removes what it left */

/* locate_local.c: err is why leader_start() failed. 0: the port is taken, and this agent is to look
 * there for the job's daemon; else err->rc. */
int locate_local_start(struct agent *a, struct dd_err *err);
void locate_local_free(struct agent *a);

/* control.c: ddctl asks the daemon through this agent */
void control_start(struct agent *a);
void control_take(struct agent *a, const struct msg_ctl_reply *m);
void control_lost(struct agent *a); /* there is no daemon any more, or another one */
void control_free(struct agent *a); /* last of all before the loop */

/* rounds.c */
/* A child that is no worker: it is not ended as one. */
void rounds_protect(struct agent *a, pid_t pid);
int rounds_new(struct agent *a, struct dd_err *err);
void rounds_presignal(struct agent *a, int sig);                /* before the allocation ends */
void rounds_take_piece(struct agent *a, const struct frame *f); /* of an exchange */
int rounds_start(struct agent *a, const struct msg_plan *m);    /* < 0: the daemon has the reason */
void rounds_check_health(struct agent *a); /* where there may be another round; then AM_CHECKED */
void rounds_send_done(struct agent *a);

/* round_history.c */
int round_history_record(struct agent *a, const struct msg_plan *plan,
                         struct dd_err *err); /* of the plan that the round has taken */
void round_history_observe(struct agent *a,
                           const struct msg_round_members *round); /* a round without this node */
void round_history_commit(struct agent *a, const struct msg_commit *m);
void round_history_write_ages(const struct agent *a, struct dd_buf *out); /* for JOIN */
void round_history_free(struct agent *a);

/* signals.c */
int signals_new(struct agent *a, struct dd_err *err);
void signals_request_stop(struct agent *a, int sig); /* STOP_REQUEST to the daemon */
/* Our own wish: ask the daemon to end the job, with this exit code (0: as the signal says). */
void signals_stop(struct agent *a, int sig, int code, const char *why);
void signals_drain(struct agent *a); /* take what has come by now: events of the machine */
/* The scheduler is just now ending the job, signal by signal and process by process: what workers
 * do meanwhile is no failure, and is not reported before the daemon knows why. */
bool signals_settling(const struct agent *a);
void signals_announce(struct agent *a, int sig); /* to those workers of this node that catch it */
void signals_free(struct agent *a);

/* timeout.c */
int timeout_start(struct agent *a,
                  struct dd_err *err); /* at the start, and on who becomes the host later */
void timeout_free(struct agent *a);

/* endtime.c */
int endtime_start(struct agent *a, struct dd_err *err); /* on the host, when it has joined */
void endtime_round(struct agent *a);         /* workers have been started: do they know? */
bool endtime_is_near(const struct agent *a); /* the signal has been sent */
void endtime_free(struct agent *a);

/* requeue.c */
void requeue_start(struct agent *a, const struct msg_finish *finish); /* AM_REQUEUED comes of it */
void requeue_free(struct agent *a);

#endif
