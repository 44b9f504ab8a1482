/* The agent's state machine: how a node finds its daemon, when another daemon may take over, what a
 * node waits for before it reports, and when it leaves. Sans I/O.
 *
 * Events come in (agent_machine_step), actions come out (agent_machine_next); the time of an event
 * comes with it, and agent_machine_timer() gives the time of the next timer. The caller carries the
 * actions out in their order; what comes of one is the next event. agent.c does so on an event
 * loop, tests/sim in virtual time.
 */
#ifndef DD_AGENT_AGENT_MACHINE_H
#define DD_AGENT_AGENT_MACHINE_H

#include "rdzv/machine.h"
#include "rdzv/members.h"

#include <stdbool.h>
#include <stdint.h>

enum am_state {
    AM_STARTING,     /* the node's health is checked */
    AM_SEEKING,      /* no daemon is known yet: the locators look for the job's first one */
    AM_LEADING,      /* linked to the first daemon, which is this node's; no round has begun */
    AM_JOINED,       /* linked to a daemon; waits for a plan */
    AM_RUNNING,      /* workers run, or are being stopped */
    AM_SETTLING,     /* the workers are gone; a signal of the scheduler may explain why */
    AM_CHECKING,     /* the same; the node's health is checked */
    AM_IDLE,         /* DONE was sent; waits for the next plan or the end */
    AM_STRANDED,     /* the daemon is lost; the workers are being stopped */
    AM_FAILING_OVER, /* the daemon is lost; the members of the last round are asked for another one
                      */
    AM_TRYING,       /* the same; linked to one that may still refuse */
    AM_CONTENDING,   /* linked to the own daemon; the members are asked for another one that goes on
                      */
    AM_BYE_SENT,     /* no workers; BYE was sent: waits until the daemon has read it */
    AM_ENDING,       /* workers are being stopped; then the node leaves */
    AM_LEAVING,      /* waits for what `pending` names */
    AM_STATES,
};

enum am_event_kind {
    AM_SEEK, /* begin: another node leads */
    /* From the locators. */
    AM_LEAD,         /* this node is to start the daemon; also: begin */
    AM_PORT_TAKEN,   /* another agent of this host has done so */
    AM_CANNOT_LEAD,  /* the daemon did not start */
    AM_FOUND,        /* a link to a daemon of this job is there */
    AM_ELSEWHERE,    /* another node's daemon goes on instead of this one's */
    AM_FAILED,       /* no daemon will be found; code */
    AM_PEERS_PROBED, /* all nodes have been asked; open: some daemon has still to answer */
    AM_PEERS_LIMIT, /* what AM_PEERS_PROBED becomes when a daemon has refused this node for too long
                     */
    /* From a daemon that was asked beside the one in use. */
    AM_OTHER_TAKES,   /* epoch */
    AM_OTHER_REFUSES, /* epoch */
    AM_OTHER_ENDED,   /* its job is over */
    AM_OTHER_GONE,    /* the link was lost */
    /* From the daemon. */
    AM_PLAN,
    AM_ROUND_STARTED, /* a round has begun without this node, which leads */
    AM_ROUND_MEMBERS, /* a round has begun; this node is a spare */
    AM_PROBE_REQUEST, /* another daemon may go on */
    AM_REDIRECT,      /* another daemon goes on; the caller knows where */
    AM_STOP,          /* code: the signal, 0: not of this round */
    AM_FINISH,        /* code */
    AM_REFUSE,
    AM_UNREADABLE,     /* a message that this node does not understand */
    AM_LOST,           /* the link was lost; becomes one of the next two where these apply */
    AM_LOST_FAIL_OVER, /* another daemon can go on with this node */
    AM_LOST_BEFORE,    /* before any round: the locator may find the next one */
    /* From the round. */
    AM_NOT_STARTED,
    AM_WORKERS_GONE,
    AM_SETTLED, /* no signal of the scheduler is under way */
    AM_CHECKED, /* the node's health is known */
    /* Signals. */
    AM_SIGNAL,        /* sig; code: the job's exit code, 0: as the signal says */
    AM_SIGNAL_AGAIN,  /* what AM_SIGNAL becomes after the first one */
    AM_STOP_AT_ONCE,  /* sig: the launcher could not start all nodes */
    AM_GUARDIAN_LOST, /* sig */
    /* What `pending` waits for. */
    AM_DAEMON_ENDED,
    AM_REQUEUED,
    /* Timers. */
    AM_SEEK_LIMIT,      /* the first daemon was not found in time */
    AM_PEERS_DUE,       /* ask all nodes for a daemon */
    AM_TAKEOVER_DUE,    /* this node starts the next daemon */
    AM_RETRY_DUE,       /* ask the members again */
    AM_FAIL_OVER_LIMIT, /* the next daemon was not found in time */
    AM_UNANSWERED,      /* the daemon has not answered a request to stop */
    AM_DAEMON_REPORTED, /* the daemon has reported the end to all that are there */
    AM_DAEMON_SLOW,     /* the daemon does not end */
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
    AM_DO_LOCATE_THERE,  /* the same, at the place that AM_REDIRECT or AM_ELSEWHERE has named */
    AM_DO_CHECK_CLAIM,   /* etcd: does another host's job go on? */
    AM_DO_ASK_PEERS,     /* one look at all nodes; AM_PEERS_PROBED comes of it */
    AM_DO_ASK_MEMBERS,   /* look for a daemon on the members of the last round, until AM_FOUND */
    AM_DO_END_SEARCHES,  /* stop both, and drop daemons that were asked */
    AM_DO_START_DAEMON,  /* and join it; else AM_CANNOT_LEAD or AM_PORT_TAKEN */
    AM_DO_STOP_DAEMON,   /* kill it */
    AM_DO_SIGNAL_DAEMON, /* arg: the signal */
    AM_DO_JOIN,          /* the found link is the one to use; send JOIN on it */
    AM_DO_ASK,           /* send JOIN on the found link beside the one in use */
    AM_DO_DROP,          /* close the found link */
    AM_DO_MOVE,          /* the link of the daemon that takes this node is the one to use */
    AM_DO_MOVE_AFTER, /* the same; the own daemon sends its nodes there, too (PROBE_RESULT, BYE) */
    AM_DO_GIVE_WAY,   /* PROBE_RESULT and BYE to the own daemon */
    AM_DO_DROP_OTHER, /* close the link of the daemon that has just answered */
    AM_DO_DROP_LINK,  /* close the link in use */
    AM_DO_SEND_BYE,   /* with the reason; AM_LOST where that is not possible */
    AM_DO_SEND_PROBE_RESULT, /* no other daemon of this job was found */
    AM_DO_SEND_STOP,         /* STOP_REQUEST; arg: the signal */
    AM_DO_START_ROUND,       /* else AM_NOT_STARTED */
    AM_DO_STOP_WORKERS,      /* arg: the signal */
    AM_DO_KILL_WORKERS,
    AM_DO_DRAIN_SIGNALS, /* AM_SETTLED when none is under way */
    AM_DO_CHECK_HEALTH,  /* where there may be another round; then AM_CHECKED */
    AM_DO_SEND_DONE,
    AM_DO_REQUEUE, /* AM_REQUEUED when the scheduler has answered, or need not be asked */
    AM_DO_REPORT,  /* to the user; arg: enum am_report */
    AM_DO_LEAVE,   /* close all links and looks */
    AM_DO_EXIT,    /* nothing is pending any more */
    AM_ACTIONS,
};

enum am_report {
    AM_REPORT_FAIL_OVER,  /* the daemon is lost, the next one is looked for */
    AM_REPORT_LOST,       /* the daemon is lost, and so the job */
    AM_REPORT_BEFORE,     /* the daemon is lost before the first round */
    AM_REPORT_REFUSED,    /* by the daemon, or by another one while failing over (debug) */
    AM_REPORT_RETRY,      /* refused while failing over: asks again */
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

/* What the node waits for. */
enum { AM_PENDING_WORKERS = 1, AM_PENDING_DAEMON = 2, AM_PENDING_REQUEUE = 4 };

struct am_cfg {
    const struct rdzv_cfg *rdzv;
    bool asks_peers; /* another node may have a daemon of this job that this one knows nothing of */
    bool etcd;       /* the leader is the one that etcd names */
    uint64_t seek_ms, rejoin_ms, grace_ms;
};

struct agent_machine {
    const struct am_cfg *cfg;
    const struct rdzv_members *last; /* members of the last round that this node knows of */
    enum am_state state;
    unsigned pending;
    bool gone;
    int code;      /* of this process, once it leaves */
    int sig;       /* the signal that ends the job; 0: none */
    int stop_code; /* the exit code that comes with it; 0: as the signal says */
    int index;     /* of this node in the host list; -1: not known */
    int64_t epoch; /* of the own daemon, later than the first; 0: none */
    bool begun;    /* a round has begun without this node */
    /* Asking the peers: while there is no daemon, or only the own first one. */
    bool wanted, refused, reported; /* the daemon waits for the outcome; another one refuses */
    unsigned peers_ms;
    uint64_t peers_since;
    /* Failing over. */
    uint64_t lost_at; /* since when there is no daemon; 0: there is one */
    unsigned again_ms;
    uint64_t due[AM_TIMERS]; /* RDZV_NEVER: off */
    struct am_action actions[64];
    unsigned first, end; /* of the actions, modulo their number */
    bool overflow;       /* an action did not fit and was dropped, which must never be */
};

void agent_machine_init(struct agent_machine *m, const struct am_cfg *cfg,
                        const struct rdzv_members *last);
void agent_machine_step(struct agent_machine *m, const struct am_event *e, uint64_t now_ms);
bool agent_machine_next(struct agent_machine *m, struct am_action *ret);
uint64_t agent_machine_timer(const struct agent_machine *m); /* RDZV_NEVER: none */
/* A timer that is due, as the event to step with, once; AM_EVENTS: none. */
enum am_event_kind agent_machine_due(struct agent_machine *m, uint64_t now_ms);

int agent_machine_signal_code(
    const struct agent_machine *m);            /* exit code of a job that is stopped */
bool agent_machine_is_linked(enum am_state s); /* there is a daemon in use */
/* Where `e` leads from `s`, after all that refines it; AM_STATES: nowhere, it is ignored. */
enum am_state agent_machine_edge(enum am_state s, enum am_event_kind e);
const char *agent_machine_state_name(enum am_state s);
const char *agent_machine_event_name(enum am_event_kind e);

#endif
