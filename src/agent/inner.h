/* Shared by the files of this room only. */
#ifndef DD_AGENT_INNER_H
#define DD_AGENT_INNER_H

#include "agent/agent.h"
#include "agent/requeue.h"
#include "agent/round.h"
#include "net/link.h"
#include "net/peer.h"
#include "rdzv/elect.h"
#include "rdzv/msg.h"
#include "rdzv/plan.h"
#include "rdzv/spent.h"
#include "worker/child_watch.h"
#include "worker/group.h"

#include <event2/event.h>
#include <sys/types.h>

enum agent_state {
    AGENT_SEEKING, /* no link yet */
    AGENT_JOINED,  /* waiting for a plan */
    AGENT_RUNNING, /* workers run, or are being stopped */
    AGENT_IDLE,    /* workers of the round are gone; waiting for what comes next */
    AGENT_ORPHAN,  /* the daemon is lost, another one is looked for */
    AGENT_ALONE,   /* the daemon is lost: stopping the workers, then leaving */
    AGENT_LEAVING, /* nothing left to do but the daemon's end */
};

/* The daemon of this node, while it has one (host.c). */
struct hosting {
    struct net_key key;
    bool has_key; /* that others may have found in the home folder */
    pid_t daemon; /* ddrund, when it lives */
    struct child_watch end;
};

/* What is kept of the rounds, for the daemon after this one (memory.c). */
struct memory {
    char *members; /* of the last round that this node has started; NULL: none (rdzv/members.h) */
    struct rdzv_members last; /* the same */
    char *committed;          /* of the last one that all its nodes had started */
    struct dd_strv
        addrs; /* of the first nodes of that round, in node rank order; "": plan.master_addr */
    uint64_t spent_ms[RDZV_SPENT_MAX]; /* how long ago the last restarts were, at spent_ns */
    int nspent;
    uint64_t spent_ns;
    uint64_t orphan_ns; /* since when there is no daemon; 0: there is one */
};

/* What came to this process, and what it meant (signals.c). */
struct signals {
    int fd;
    struct event *ev;
    struct signal_news *news;
    int last;            /* that ends the job; 0: none */
    int code;            /* the job's exit code with it; 0: as the signal says */
    bool scheduler_ends; /* it was the scheduler's */
    bool end_stop;       /* it was ours, since the allocation ends */
};

struct agent {
    const struct agent_cfg *cfg;
    struct event_base *base;
    enum agent_state state;
    struct link *link;
    bool parted; /* BYE was said on it: what still comes counts no more */
    struct link_find *find;
    struct net_key_input key_in; /* with the job's name filled in */
    struct net_peer *peer;
    struct hosting host;
    struct memory memory;
    struct signals signals;
    struct event *progress, *deadline, *alone, *stopping;
    struct event *timeout;   /* of --timeout; NULL: not asked for, or another node is the host */
    struct endtime *endtime; /* endtime.c; NULL: not asked for, or not the host */
    struct round *round;
    struct requeue *requeue; /* requeue.c; NULL: nothing to do */
    struct health *health;   /* health_check.c */
    int code;
    int index;                     /* of this node: as the allocation says, or the daemon */
    int64_t epoch;                 /* of our own daemon, if we have had one */
    struct succession *succession; /* NULL: nothing is looked for */
    struct control *control;       /* control.c; NULL: nobody can ask */
    struct search *search;         /* search.c; NULL: the other nodes are not asked */
    struct follow
        *follow; /* follow.c; NULL: this agent is the first node, or seeks it as all others do */
    struct discover *discover; /* discover.c; NULL: not through etcd, or not yet */
};

void agent_leave(struct agent *a,
                 int code); /* nothing runs any more: end the loop, when the daemon is gone */
void agent_end(struct agent *a, int code,
               int sig); /* whatever the others do: with sig to its workers, then leave */
void agent_send(struct agent *a, const struct msg *m);
void agent_tell(struct link *l, const struct msg *m); /* the same to another daemon */
void agent_send_join(struct agent *a, struct link *l);
void agent_join(struct agent *a, struct link *l);     /* takes l */
void agent_use_link(struct agent *a, struct link *l); /* takes l; JOIN has been sent on it */
void agent_take_frame(struct agent *a, const struct frame *f);
/* Where daemons of this job listen: the user's port alone; else those of the scheduler and then
 * elected ones. *ret_near: so many that any daemon may have; the first one may have gone on to the
 * others. Returns how many there are. */
enum { AGENT_PORTS = ALLOC_MAX_PORTS + ELECT_WALK };
size_t agent_ports(const struct agent *a, uint16_t out[AGENT_PORTS], size_t *ret_near);
void agent_find_cfg(struct agent *a, struct link_find_cfg *ret,
                    uint16_t ports[AGENT_PORTS]); /* both are lent to it */
int agent_be_host(struct agent *a, struct dd_err *err);
int agent_seek(struct agent *a, const char *addr,
               struct dd_err *err);     /* the daemon at addr; NULL: on the first node */
void agent_seek_begin(struct agent *a); /* from now on there is a limit to the search */
int agent_connect(struct agent *a, const struct link_find_cfg *cfg,
                  struct dd_err *err); /* and joins */
void agent_protect(struct agent *a,
                   pid_t pid); /* a child that is no worker: not to be ended as one */

/* host.c: binds the port, starts ddrund on it; *ret_fd is our end of its link */
int host_start(struct agent *a, int *ret_fd, struct dd_err *err);
int host_bind(struct agent *a, uint16_t *ret_port,
              struct dd_err *err); /* a listening socket on a candidate port */
void host_stop(struct agent *a);   /* ends ddrund, if it lives, and removes what it left */

/* follow.c: err is why agent_be_host() failed. 0: the port is taken, and this agent now looks there
 * for the job's daemon; else err->rc. */
int follow_begin(struct agent *a, struct dd_err *err);
void follow_free(struct agent *a);

/* succession.c */
bool succession_possible(
    const struct agent *a); /* is there a next round for which another daemon is worth while? */
void succession_begin(struct agent *a, bool lost);
bool succession_refused(struct agent *a, const char *why); /* true: it goes on */
void succession_end(struct agent *a);

/* search.c */
bool search_possible(
    const struct agent *a); /* are the other nodes known, and may there be a later daemon? */
void search_start(struct agent *a);  /* in the background, until search_end() */
void search_wanted(struct agent *a); /* at once, and the daemon is to be told */
void search_end(struct agent *a);

/* control.c: ddctl asks the daemon through this agent */
void control_start(struct agent *a);
void control_take(struct agent *a, const struct msg_ctl_reply *m);
void control_lost(struct agent *a); /* there is no daemon any more, or another one */
void control_free(struct agent *a); /* last of all before the loop */

/* rounds.c */
int rounds_new(struct agent *a, struct dd_err *err);
void rounds_presignal(struct agent *a, int sig);                /* before the allocation ends */
void rounds_take_piece(struct agent *a, const struct frame *f); /* of an exchange */
void rounds_start(struct agent *a, const struct msg_plan *m);   /* a failure is reported */
void rounds_settled(struct agent *a);                           /* !signals_settling() any more */

/* memory.c */
int memory_take(struct agent *a, const struct msg_plan *plan,
                struct dd_err *err); /* of the plan that the round has taken */
void memory_observe(struct agent *a,
                    const struct msg_round_members *round); /* a round without this node */
void memory_committed(struct agent *a, const struct msg_commit *m);
void memory_write_spent(const struct agent *a, struct dd_buf *out); /* for JOIN */
void memory_free(struct agent *a);

/* signals.c */
int signals_new(struct agent *a, struct dd_err *err);
int signals_code(
    const struct agent *a); /* what the job ends with after `last`, where no daemon says it */
void signals_joined(struct agent *a); /* the daemon is there: tell it what came before */
/* Our own wish: ask the daemon to end the job, with this exit code (0: as the signal says). */
void signals_stop(struct agent *a, int sig, int code, const char *why);
/* The scheduler is just now ending the job, signal by signal and process by process: what workers
 * do meanwhile is no failure, and is not told before the daemon knows why. */
bool signals_settling(struct agent *a);
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
void requeue_start(struct agent *a, const struct msg_finish *finish); /* before agent_leave() */
bool requeue_is_busy(const struct agent *a); /* it calls agent_leave() again when it is through */
void requeue_free(struct agent *a);

#endif
