/* Shared by the files of this directory only. */
#ifndef DD_AGENT_INNER_H
#define DD_AGENT_INNER_H

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "agent/locators.h"
#include "agent/requeue.h"
#include "agent/round.h"
#include "agent/round_history.h"
#include "agent/uplink.h"
#include "net/link.h"
#include "net/peer_uid.h"
#include "rdzv/elect.h"
#include "rdzv/msg.h"
#include "rdzv/plan.h"
#include "worker/child_watch.h"
#include "worker/worker_group.h"

#include <event2/event.h>
#include <sys/types.h>

struct agent;

/* The daemon that this node runs (leader.c). */
struct leader {
    struct net_key key;
    bool has_key; /* `key` is set, and may lie in the home directory for other nodes */
    pid_t daemon; /* pid of ddrund; 0: not running */
    struct child_watch end;
};

/* Signals received and how they were interpreted (signals.c). */
struct signals {
    int fd;
    struct event *ev;
    struct signal_states *states;
    struct event *stopping; /* notice that ddrun still waits for workers */
    char why[256];          /* reason for the next STOP_REQUEST; "": a signal to this process */
    bool scheduler_ends;    /* the scheduler ends the job */
    bool end_stop;          /* --signal-before-end ends the job */
};

struct agent {
    struct agent_loop loop;
    const struct msg *message; /* the message being handled; NULL: none */
    struct uplink *uplink;
    struct locators locators;
    struct net_peer *peer;
    struct leader leader;
    struct round_history history;
    struct signals signals;
    struct event *timeout;   /* of --timeout; NULL: none, or another node leads */
    struct endtime *endtime; /* of --signal-before-end; NULL: none, or another node leads */
    struct round *round;
    struct requeue *requeue; /* NULL: nothing to requeue */
    struct health *health;
    struct control *control;           /* NULL: ddctl is not served */
    struct metrics_file *metrics_file; /* of --metrics; NULL: none, or this node never led */
};

/* agent_messages.c: handle a frame of the daemon in use; send JOIN on l. */
void agent_receive(void *arg, const struct frame *f);
void agent_send_join(void *arg, struct link *l);

/* agent_actions.c: carry out an action of the machine, which may raise events. */
void agent_act(void *arg, const struct am_action *what);

/* leader.c */
int leader_start(struct agent *a, struct dd_err *err); /* start ddrund and join it */
void leader_stop(struct agent *a); /* kill ddrund if it runs, and remove its key */

/* control.c: ddctl's access to the daemon through this agent */
void control_start(struct agent *a);
void control_take(struct agent *a, const struct msg_ctl_reply *m);
void control_lost(struct agent *a); /* the link in use has changed: refuse pending requests */
void control_free(struct agent *a); /* call just before the loop is freed */

/* rounds.c */
/* Exclude a child that is not a worker from the end of the workers. */
void rounds_protect(struct agent *a, pid_t pid);
int rounds_new(struct agent *a, struct dd_err *err);
void rounds_presignal(
    struct agent *a,
    int sig); /* forward the signal before the end of the allocation to the round */
void rounds_take_piece(struct agent *a, const struct frame *f); /* piece of an exchange */
int rounds_start(struct agent *a,
                 const struct msg_plan *m); /* < 0: not started; the reason has been reported */
void rounds_check_health(struct agent *a);  /* if another round may follow; AM_CHECKED follows */
void rounds_send_done(struct agent *a);

/* signals.c */
int signals_new(struct agent *a, struct dd_err *err);
void signals_request_stop(struct agent *a, int sig); /* send STOP_REQUEST to the daemon */
/* End the job for a reason of this agent, with this exit code (0: 128 + sig). */
void signals_stop(struct agent *a, int sig, int code, const char *why);
void signals_drain(struct agent *a); /* handle signals that have arrived; raises events */
/* True while the scheduler is ending the job, process by process: exits of workers meanwhile are no
 * failures, and are reported only after the daemon knows the reason. */
bool signals_settling(const struct agent *a);
void signals_announce(struct agent *a,
                      int sig); /* signal the workers of this node that catch the signal */
void signals_free(struct agent *a);

/* timeout.c */
int timeout_start(
    struct agent *a,
    struct dd_err *err); /* call at the start, and on a node that becomes the leader */
void timeout_free(struct agent *a);

/* signal_before_end.c */
int endtime_start(struct agent *a, struct dd_err *err); /* call on the leader after it has joined */
void endtime_round(struct agent *a); /* workers have been started: signal them again if the signal
                                        was sent before */
bool endtime_is_near(const struct agent *a); /* True if the signal has been sent */
void endtime_free(struct agent *a);

/* requeue.c */
void requeue_start(struct agent *a, const struct msg_finish *finish); /* AM_REQUEUED follows */
void requeue_free(struct agent *a);

#endif
