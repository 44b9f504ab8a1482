/* The agent's state machine: how a node finds its daemon, when another daemon may take over, what a
 * node waits for before it reports, and when it leaves. Sans I/O.
 *
 * Events come in (agent_machine_step), actions come out (agent_machine_next); each event
 * carries its time, and agent_machine_timer() returns when the next timer is due. The caller
 * carries out the actions in order; their results are further events. agent_loop.c does so on an
 * event loop, tests/sim in virtual time.
 */
#ifndef DD_AGENT_AGENT_MACHINE_H
#define DD_AGENT_AGENT_MACHINE_H

#include "rdzv/machine.h"
#include "rdzv/members.h"

#include <stdbool.h>
#include <stdint.h>

enum am_state {
    AM_STARTING, /* before AM_SEEK or AM_LEAD: the node's health is checked */
    AM_SEEKING,  /* no daemon in use; the locators look for the job's first one, or for the one that
                    continues the job */
    AM_LEADING,  /* linked to the job's first daemon, on this node; no round has started */
    AM_JOINED,   /* linked to a daemon; waits for a plan */
    AM_RUNNING,  /* workers run, or are being stopped */
    AM_SETTLING, /* the workers have exited; a pending signal of the scheduler may explain why */
    AM_CHECKING, /* the workers have exited; the node's health is checked */
    AM_IDLE,     /* DONE was sent; waits for the next plan or the end */
    AM_STRANDED, /* the daemon is lost or was given up; the workers are being stopped */
    AM_FAILING_OVER, /* no daemon in use; the members of the last round are probed for one */
    AM_TRYING,       /* failing over; linked to a daemon that may still refuse */
    AM_CONTENDING, /* linked to the daemon of this node, after a round; the members of the round are
                      probed for a competing daemon */
    AM_BYE_SENT,   /* no workers; BYE sent; waits until the daemon closes the link */
    AM_ENDING,     /* workers are being stopped; then the node leaves */
    AM_LEAVING,    /* waits for what `pending` names */
    AM_STATES,
};

enum am_event_kind {
    AM_SEEK, /* begin; another node starts the daemon */
    /* From the locators, and from the start of ddrund. */
    AM_LEAD,         /* start the daemon on this node; also: begin */
    AM_PORT_TAKEN,   /* another agent of this host has started the daemon */
    AM_CANNOT_LEAD,  /* the daemon did not start */
    AM_FOUND,        /* a locator has connected to a daemon of this job */
    AM_ELSEWHERE,    /* the daemon of another node continues the job, not that of this node */
    AM_FAILED,       /* an error ends this node; code: exit code */
    AM_PEERS_PROBED, /* a pass over the peers has ended; open: a daemon has yet to answer */
    AM_PEERS_LIMIT,  /* refined from AM_PEERS_PROBED: a daemon has refused this node for too long */
    /* From another daemon, to which this node has sent JOIN while it keeps the link in use. */
    AM_OTHER_TAKES,   /* the daemon takes this node; epoch */
    AM_OTHER_REFUSES, /* the daemon refuses this node; epoch */
    AM_OTHER_ENDED,   /* the job has ended */
    AM_OTHER_GONE,    /* the link to the other daemon was lost */
    /* From the daemon. */
    AM_PLAN,
    AM_ROUND_STARTED, /* this node leads, and a round has started without it */
    AM_ROUND_MEMBERS, /* a round has started; this node is a spare */
    AM_PROBE_REQUEST, /* look for another daemon, which may continue the job */
    AM_REDIRECT,      /* another daemon continues the job; the caller has its address */
    AM_STOP,          /* code: the signal; 0: the message is not for this round */
    AM_FINISH,        /* code: exit code of the job */
    AM_REFUSE,
    AM_UNREADABLE, /* a message that this node cannot read */
    AM_LOST,       /* the link was lost; may be refined to AM_LOST_FAIL_OVER or AM_LOST_BEFORE */
    AM_LOST_FAIL_OVER, /* another daemon can continue the job with this node */
    AM_LOST_NO_MEMORY, /* lost because this process is out of memory: no daemon can help */
    AM_LOST_BEFORE,    /* lost before any round: the locator may find the next daemon */
    /* From the round. */
    AM_NOT_STARTED,
    AM_WORKERS_GONE,
    AM_SETTLED, /* no signal of the scheduler is pending */
    AM_CHECKED, /* the node's health is known */
    /* Signals. */
    AM_SIGNAL,        /* sig; code: exit code of the job, 0: 128 + sig */
    AM_SIGNAL_AGAIN,  /* refined from AM_SIGNAL after the first one */
    AM_STOP_AT_ONCE,  /* sig; the launcher does not want this node, and no round runs here */
    AM_GUARDIAN_LOST, /* the guardian has died; sig: SIGTERM */
    /* Completions of what `pending` names. */
    AM_DAEMON_ENDED,
    AM_REQUEUED,
    /* Timers. */
    AM_SEEK_LIMIT,      /* the first daemon was not found in time */
    AM_PEERS_DUE,       /* probe the peers for a daemon */
    AM_TAKEOVER_DUE,    /* this node may start the next daemon */
    AM_RETRY_DUE,       /* probe the members again */
    AM_FAIL_OVER_LIMIT, /* the next daemon was not found in time */
    AM_UNANSWERED,      /* the daemon has not answered STOP_REQUEST */
    AM_DAEMON_REPORTED, /* ddrund has had time to report the end to all connected nodes */
    AM_DAEMON_SLOW,     /* ddrund has not exited in time */
    AM_EVENTS,
    AM_FIRST_TIMER = AM_SEEK_LIMIT,
    AM_TIMERS = AM_EVENTS - AM_FIRST_TIMER,
};

struct am_event {
    enum am_event_kind kind;
    int code, sig;
    bool open;
    int64_t epoch;
};

enum am_action_kind {
    AM_DO_LOCATE,        /* start the locators of the first daemon */
    AM_DO_LOCATE_THERE,  /* search at the address that came with AM_REDIRECT or AM_ELSEWHERE */
    AM_DO_CHECK_CLAIM,   /* query etcd: has another leader started the job? */
    AM_DO_ASK_PEERS,     /* make one pass over the peers; AM_PEERS_PROBED follows */
    AM_DO_ASK_MEMBERS,   /* probe the members of the last round until AM_FOUND */
    AM_DO_END_SEARCHES,  /* stop both searches, and close links to daemons that were asked */
    AM_DO_START_DAEMON,  /* start ddrund and join it; AM_CANNOT_LEAD or AM_PORT_TAKEN on failure */
    AM_DO_STOP_DAEMON,   /* kill ddrund */
    AM_DO_SIGNAL_DAEMON, /* arg: the signal */
    AM_DO_JOIN,          /* use the found link; send JOIN */
    AM_DO_ASK,           /* send JOIN on the found link, and keep the link in use */
    AM_DO_DROP,          /* close the found link */
    AM_DO_MOVE,          /* use the link of the daemon that takes this node */
    AM_DO_MOVE_AFTER,    /* as AM_DO_MOVE, after PROBE_RESULT and BYE to this node's daemon */
    AM_DO_GIVE_WAY,      /* PROBE_RESULT and BYE to this node's daemon */
    AM_DO_DROP_OTHER,    /* close the link of the daemon that has just answered */
    AM_DO_DROP_LINK,     /* close the link in use */
    AM_DO_SEND_BYE,      /* BYE with the reason; AM_LOST on failure */
    AM_DO_SEND_PROBE_RESULT, /* no other daemon of this job was found */
    AM_DO_SEND_STOP,         /* STOP_REQUEST; arg: the signal */
    AM_DO_START_ROUND,       /* AM_NOT_STARTED on failure */
    AM_DO_STOP_WORKERS,      /* arg: the signal */
    AM_DO_KILL_WORKERS,
    AM_DO_DRAIN_SIGNALS, /* AM_SETTLED if no signal of the scheduler is pending */
    AM_DO_CHECK_HEALTH,  /* if another round may follow; AM_CHECKED follows */
    AM_DO_SEND_DONE,
    AM_DO_REQUEUE, /* AM_REQUEUED follows once the scheduler has answered, or at once */
    AM_DO_REPORT,  /* log a message for the user; arg: enum am_report */
    AM_DO_LEAVE,   /* close all links and stop all searches */
    AM_DO_EXIT,    /* nothing is pending: leave the loop */
    AM_ACTIONS,
};

enum am_report {
    AM_REPORT_FAIL_OVER,  /* the daemon is lost; looking for the next one */
    AM_REPORT_LOST,       /* the daemon and the job are lost */
    AM_REPORT_NO_MEMORY,  /* the link to the daemon is lost: this process is out of memory */
    AM_REPORT_BEFORE,     /* the daemon is lost before the first round */
    AM_REPORT_REFUSED,    /* the daemon has refused this node */
    AM_REPORT_RETRY,      /* refused while failing over; retrying (debug) */
    AM_REPORT_SEEK_LIMIT, /* no daemon in time */
    AM_REPORT_PEERS_LIMIT,
    AM_REPORT_FAIL_OVER_LIMIT,
    AM_REPORT_OTHER_REFUSES,
    AM_REPORT_CANNOT_LEAD,
};

struct am_action {
    enum am_action_kind kind;
    int arg;
};

/* What the node waits for before it exits. */
enum { AM_PENDING_WORKERS = 1, AM_PENDING_DAEMON = 2, AM_PENDING_REQUEUE = 4 };

struct am_cfg {
    const struct rdzv_cfg *rdzv;
    bool asks_peers; /* probe the peers: an unknown daemon of this job may run there */
    bool etcd;       /* etcd names the leader */
    uint64_t seek_ms, rejoin_ms, grace_ms;
};

struct agent_machine {
    const struct am_cfg *cfg;
    const struct rdzv_members *last; /* members of the last round that this node knows of */
    enum am_state state;
    unsigned pending;
    bool gone;
    int code;      /* exit code of this process */
    int sig;       /* the signal that ends the job; 0: none */
    int stop_code; /* exit code that AM_SIGNAL carries; 0: 128 + sig */
    int index;     /* position of this node in the host list; -1: the daemon assigns it */
    int64_t epoch; /* epoch of this node's daemon, unless it is the job's first; 0: none */
    bool begun;    /* a round has begun without this node */
    /* Probing peers, while there is no daemon, or only this node's first one. */
    bool wanted;   /* the daemon waits for the result */
    bool refused;  /* another daemon refuses this node */
    bool reported; /* the refusal was reported to the user */
    unsigned peers_ms;
    uint64_t peers_since;
    /* Failing over. */
    uint64_t lost_at; /* time of the loss of the daemon, in ms; 0: not failing over */
    unsigned again_ms;
    uint64_t due[AM_TIMERS]; /* RDZV_NEVER: off */
    struct am_action actions[64];
    unsigned first, end; /* counters; modulo the size of the ring, its first action and its end */
    bool overflow;       /* an action was dropped because the ring was full: a bug */
};

void agent_machine_init(struct agent_machine *m, const struct am_cfg *cfg,
                        const struct rdzv_members *last);
/* Set the position in the host list that the daemon has assigned to this node. */
void agent_machine_set_index(struct agent_machine *m, int index);
void agent_machine_step(struct agent_machine *m, const struct am_event *e, uint64_t now_ms);
bool agent_machine_next(struct agent_machine *m, struct am_action *ret);
uint64_t agent_machine_timer(const struct agent_machine *m); /* RDZV_NEVER: none */
/* Move all timers by ms during which this process did not run. */
void agent_machine_postpone(struct agent_machine *m, uint64_t ms);
/* Take a due timer, as the event to step with; AM_EVENTS: none is due. */
enum am_event_kind agent_machine_due(struct agent_machine *m, uint64_t now_ms);

int agent_machine_signal_code(
    const struct agent_machine *m);            /* exit code of a job that a signal has stopped */
bool agent_machine_is_linked(enum am_state s); /* True if a daemon is in use. */
/* Return the next state for the (refined) event `e` in state `s`; AM_STATES: the event is ignored.
 */
enum am_state agent_machine_edge(enum am_state s, enum am_event_kind e);
const char *agent_machine_state_name(enum am_state s);
const char *agent_machine_event_name(enum am_event_kind e);

#endif
