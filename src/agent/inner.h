/* Shared by the files of this directory only. */
#ifndef DD_AGENT_INNER_H
#define DD_AGENT_INNER_H

#include "agent/agent.h"
#include "agent/agent_loop.h"
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

/* The locators (locate_*.c) each find a daemon by another method. They pass its link to
 * uplink_found(), or raise AM_LEAD, AM_ELSEWHERE or AM_FAILED. */
struct locate_leader {
    struct link_find *find; /* NULL: no search */
    struct event *progress; /* periodic progress report */
    /* Status of finding the leader's address, lent, used while `find` is NULL. The function may be
     * NULL. */
    const char *(*status)(const struct agent *a);
};

struct locate_peers {
    struct link_probe *probe; /* NULL: no search, or all peers are probed */
    bool asking;
    size_t next; /* on other nodes than the leader: the first peer of the next pass */
};

struct locate_members {
    struct link_find *finds[RDZV_SUCCESSORS];
    int n;
};

struct agent {
    struct agent_loop loop;
    const struct msg *message; /* the message being handled; NULL: none */
    struct uplink *uplink;
    struct locate_leader locate_leader;
    struct locate_peers locate_peers;
    struct locate_members locate_members;
    struct locate_etcd *locate_etcd;   /* NULL: etcd is not used, or not queried yet */
    struct locate_local *locate_local; /* NULL: the port was free, or belongs to another node */
    struct net_key_input key_in;       /* cfg->key_in with the job id */
    struct net_peer *peer;
    struct leader leader;
    struct round_history history;
    struct signals signals;
    struct event *timeout;   /* of --timeout; NULL: none, or another node leads */
    struct endtime *endtime; /* of --signal-before-end; NULL: none, or another node leads */
    struct round *round;
    struct requeue *requeue; /* NULL: nothing to requeue */
    struct health *health;
    struct control *control; /* NULL: ddctl is not served */
};

/* agent_messages.c: handle a frame of the daemon in use; send JOIN on l. */
void agent_receive(void *arg, const struct frame *f);
void agent_send_join(void *arg, struct link *l);

/* agent_actions.c: carry out an action of the machine, which may raise events. */
void agent_act(void *arg, const struct am_action *what);

/* locate.c: candidate ports of daemons of this job: the user's port alone; else those of the
 * scheduler, then elected ones. Any daemon may listen on the first *ret_near of them, the first
 * daemon on all. Returns their number. */
enum { LOCATE_PORTS = ALLOC_MAX_PORTS + ELECT_WALK };
size_t locate_ports(const struct agent *a, uint16_t out[LOCATE_PORTS], size_t *ret_near);
void locate_find_cfg(struct agent *a, struct link_find_cfg *ret,
                     uint16_t ports[LOCATE_PORTS]); /* ret borrows ports */

/* Listen on the first free candidate port. Returns the socket, or < 0. */
int locate_bind(struct agent *a, uint16_t *ret_port, struct dd_err *err);

/* locate_leader.c; addr NULL: that of the first node */
int locate_leader_new(struct agent *a);
int locate_leader_start(struct agent *a, const char *addr, struct dd_err *err);
/* Start the progress reports; status: see struct locate_leader. */
void locate_leader_begin(struct agent *a, const char *(*status)(const struct agent *a));
int locate_leader_connect(struct agent *a, const struct link_find_cfg *cfg, struct dd_err *err);
const char *locate_leader_status(struct agent *a); /* lent; NULL: no search */
void locate_leader_stop(struct agent *a);
void locate_leader_free(struct agent *a);

/* locate_peers.c: probe all peers once; AM_PEERS_PROBED follows */
bool locate_peers_possible(const struct agent_cfg *cfg);
void locate_peers_start(struct agent *a);
void locate_peers_check(struct agent *a); /* call after a daemon that was asked has answered */
void locate_peers_stop(struct agent *a);

/* locate_members.c */
void locate_members_start(struct agent *a);
void locate_members_stop(struct agent *a);

/* leader.c */
int leader_start(struct agent *a, struct dd_err *err); /* start ddrund and join it */
void leader_stop(struct agent *a); /* kill ddrund if it runs, and remove its key */

/* locate_local.c: err is why leader_start() failed. Returns 0 if another agent of this host may
 * have the port: look there for the job's daemon; else err->rc. */
int locate_local_start(struct agent *a, struct dd_err *err);
void locate_local_free(struct agent *a);

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
