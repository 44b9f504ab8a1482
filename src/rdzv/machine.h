/* The round machine decides which nodes take part in a round, with which ranks, and how the job
 * ends. Sans I/O: events come in (rdzv_step), actions come out (rdzv_next_action), each event
 * carries its time, and rdzv_timer() returns when the next RDZV_TIME is due. A member is an agent
 * that has joined. The caller numbers its connections 0 … capacity-1 ("id"); a member keeps its id
 * until it is lost. A member outside the round waits for the next one. */
#ifndef DD_RDZV_MACHINE_H
#define DD_RDZV_MACHINE_H

#include "base/err.h"
#include "hostlist/hostlist.h"
#include "rdzv/charges.h"
#include "rdzv/exit_rules.h"
#include "rdzv/members.h"
#include "rdzv/plan.h"
#include "rdzv/waiting.h"

#include <stdbool.h>
#include <stdint.h>

enum rdzv_state { RDZV_GATHERING, RDZV_RUNNING, RDZV_STOPPING, RDZV_FINISHED, RDZV_STATE_MAX };

enum rdzv_event_kind {
    RDZV_JOIN,                 /* an agent asks to take part */
    RDZV_STARTED,              /* a member has started its workers of this round */
    RDZV_EXIT,                 /* a worker failed */
    RDZV_SUCCESS_CRITERIA_MET, /* the required workers of a member have succeeded; from all members:
                                  ends the job */
    RDZV_PROGRESS,             /* the program has reached a step */
    RDZV_DONE,                 /* all workers of a member have exited */
    RDZV_LOST,                 /* the connection of a member is lost */
    RDZV_STOP_REQUEST,         /* a member, or the daemon itself, requests the end of the job */
    RDZV_PROBE_RESULT, /* the daemon's own node has probed all others and found no other daemon */
    RDZV_MARKS,        /* the scheduler takes these nodes out of service */
    RDZV_DRAIN, /* exclude a member from further rounds at a user's request; text: the reason */
    RDZV_TIME,  /* rdzv_timer() is due */
    RDZV_EVENT_MAX,
};

struct rdzv_event {
    enum rdzv_event_kind kind;
    int id;        /* the member; unused in TIME and MARKS; -1 in STOP_REQUEST: the daemon itself */
    int round;     /* STARTED, EXIT, SUCCESS_CRITERIA_MET, PROGRESS, DONE: stale events, of another
                    * round, are ignored */
    int index;     /* JOIN: position in the host list; -1: the machine assigns one */
    int nnodes;    /* JOIN: maximum of --nnodes on that node */
    int min_nodes; /* JOIN: minimum of --nnodes on that node; 0: not checked */
    int64_t epoch; /* JOIN: epoch of a daemon on that node; 0: none */
    int slots;     /* JOIN: number of workers it starts */
    const char *name; /* JOIN: node name */
    const char
        *addr; /* JOIN: address at which the agent reached the daemon; "": the daemon's own node */
    int local_rank, code, signal; /* EXIT: of the worker. STOP_REQUEST: signal 0: a node cannot
                                     start its workers; code 0: 128 + signal */
    int64_t step;                 /* PROGRESS */
    bool clean;        /* LOST: the agent has sent BYE, so it is not behind a network partition */
    uint64_t at;       /* EXIT: time of the exit; 0: now */
    bool remote;       /* EXIT: the failure is a consequence of another worker's */
    const char *text;  /* JOIN: why the node cannot run workers; NULL or "": it can. LOST,
                          STOP_REQUEST: the reason or "". EXIT: the reason, "" or NULL.
                          DRAIN: the reason. MARKS: all marks (rdzv/marks.h) */
    const char *unfit; /* JOIN, DONE: why the node is unfit; NULL or "": it is fit */
    const char *check; /* JOIN: health check that found the node unfit; NULL or "": unknown */
    /* JOIN: rounds that the agent remembers, of any daemon; NULL: none */
    const struct rdzv_members *committed; /* last round that all its members had started */
    const struct rdzv_members *planned;   /* last round that this agent has started */
    const uint64_t *ages; /* JOIN: ages of the last restarts that the agent remembers, in ns, the
                             youngest first */
    int nages;            /* number of ages */
    const struct charges *charges; /* JOIN: charges that the agent remembers; NULL: none */
    bool ended_well;               /* JOIN: all its workers of the round `planned` have succeeded */
    bool elsewhere; /* JOIN: the agent is linked to another daemon, and leaves that one if accepted
                       here */
};

enum rdzv_action_kind {
    RDZV_SEND_REFUSE,        /* to id: text is the reason; close its connection */
    RDZV_SEND_WELCOME,       /* to id, an agent of another daemon: it is a member here now */
    RDZV_SEND_PLAN,          /* to id: the plan of rdzv_plan() */
    RDZV_SEND_PROBE_REQUEST, /* to id, the daemon's own node: search for another daemon that may
                                continue the job. With cfg.probes_first, RDZV_PROBE_RESULT must
                                follow before the first round */
    RDZV_SEND_ROUND_STARTED, /* to id, the daemon's own node: a round has started without it; stop
                                the search for other daemons */
    RDZV_SEND_COMMIT,        /* to id: all members have started the round */
    RDZV_SEND_ROUND_MEMBERS, /* to id, a spare: the members of the round (rdzv_planned()) */
    RDZV_SEND_STOP,          /* to id: stop the workers with `signal` */
    RDZV_SEND_FINISH, /* to id: exit with rdzv_code(); report: also report rdzv_text() to the user
                       */
    RDZV_SEND_NOTE,   /* to id: text is a notice for the user */
    RDZV_DROP_STORE,  /* delete the keys of the round that has ended */
    RDZV_SEND_SIGNAL, /* to id: pass `signal` to its workers, which are to save their state */
    RDZV_EXCLUDED,    /* id takes part in no further round; text is the reason */
};

struct rdzv_action {
    enum rdzv_action_kind kind;
    int id;
    int signal;
    bool report;
    char text[400];
};

enum rdzv_grow { RDZV_GROW_NEXT, RDZV_GROW_NOW, RDZV_GROW_NO };

struct rdzv_cfg {
    int min_nodes, max_nodes; /* number of nodes of a round */
    int expected;             /* nodes that are expected to join; 0: max_nodes */
    int capacity;             /* maximum number of members at a time; 0: max_nodes */
    int max_restarts;
    uint64_t restart_window_ns; /* max_restarts applies within this time; 0: to the whole job */
    uint64_t join_ns;           /* time to wait for the nodes of the first round */
    uint64_t last_call_ns;      /* time to wait for more nodes once min_nodes have joined */
    uint64_t rejoin_ns;         /* time to wait for enough nodes after a loss */
    enum rdzv_grow grow;        /* when a late node takes part */
    uint16_t master_port;
    const struct hostlist
        *nodes;    /* borrowed for the machine's life; may lack names of nodes; NULL: no names */
    int64_t epoch; /* 0: the first daemon of the job */
    int tie;       /* index of the daemon's node */
    struct exit_rules exit_rules;
    uint64_t blame_window_ns; /* leave out a node with two first failures within this time; 0: never
                               */
    int leave_signal;  /* signal to all workers before a restart without the marked nodes; 0: none,
                          the next restart leaves these nodes out */
    uint64_t leave_ns; /* time from leave_signal to that restart */
    int progress_restarts; /* end the job after so many restarts in a row without a new step; 0:
                              never */
    int probes_first; /* 1: the daemon's node may be a restarted one, so another daemon may exist:
                         start the first round with all expected nodes, or after the other nodes
                         have been probed */
};

#define RDZV_NEVER UINT64_MAX

/* True if the loss of a node costs no restart, because a round may have fewer nodes or spares
 * exist. */
bool rdzv_is_elastic(const struct rdzv_cfg *cfg);

struct rdzv;

int rdzv_new(struct rdzv **ret, const struct rdzv_cfg *cfg, uint64_t now);
void rdzv_free(struct rdzv *m);

/* Handle one event. Returns 0, -ENOMEM, -E2BIG (the agents remember too many rounds of older
 * daemons), or -EINVAL for an event that is invalid in this state (nothing has changed). */
int rdzv_step(struct rdzv *m, const struct rdzv_event *e, uint64_t now);
/* Take the next action, in order; false: none. */
bool rdzv_next_action(struct rdzv *m, struct rdzv_action *ret);
uint64_t rdzv_timer(const struct rdzv *m); /* time when RDZV_TIME is due, on the clock of `now`;
                                              RDZV_NEVER: never */

enum rdzv_state rdzv_state(const struct rdzv *m);
const char *rdzv_state_name(enum rdzv_state s);
const char *rdzv_event_name(enum rdzv_event_kind e);
int rdzv_round(const struct rdzv *m);
/* Write the ages of the last restarts, the youngest first, at most `max`. Returns the number of
 * ages; 0 without restart_window_ns. */
int rdzv_ages(const struct rdzv *m, uint64_t now, uint64_t *ages, int max);
bool rdzv_misses_nodes(const struct rdzv *m); /* True before the first round of a successor while
                                                 nodes of the last round are missing. */
int rdzv_code(const struct rdzv *m);          /* exit code of the finished job */
/* True between leave_signal and the restart, when a worker may save its state and exit with this
 * code, which is no failure. */
bool rdzv_expects_exit(const struct rdzv *m, int code);
/* True if a rule has set rdzv_code(): the exit code of the first failure does not replace it. */
bool rdzv_code_is_ruled(const struct rdzv *m);
const char *rdzv_text(const struct rdzv *m); /* report for the user, lent; "": success */
bool rdzv_may_continue(const struct rdzv *m,
                       uint64_t now); /* True if another round may follow the loss of a node. */
bool rdzv_has_begun(const struct rdzv *m); /* True if this daemon has started a round. */
bool rdzv_all_finished(
    const struct rdzv *m);              /* True if FINISH has been sent to every node of the job. */
int rdzv_members(const struct rdzv *m); /* number of connected members */
int rdzv_wanted(const struct rdzv *m);  /* number of nodes to wait for while gathering */
int rdzv_id_of_rank(const struct rdzv *m,
                    int node_rank); /* id of the member with this node rank; -1: lost, or none */
/* Make the plan of a member for the current round, in time proportional to the round's size. 0,
 * -EINVAL (not a member of a round) or -ENOMEM. The caller frees the content of *ret. The plans of
 * two members differ in their ranks, local_size and master_addr. */
int rdzv_plan(const struct rdzv *m, int id, struct plan *ret);
int rdzv_node_rank(const struct rdzv *m, int id); /* in the current round; -1: outside of it */
/* Return MASTER_ADDR of a member, lent: the address at which it has reached the daemon. The
 * daemon's own node uses an address that another node has reached, preferably not a loopback one.
 */
const char *rdzv_master_addr(const struct rdzv *m, int id);
const struct rdzv_members *
rdzv_planned(const struct rdzv *m); /* members of the current round, lent */
/* A member, for the status that users see. */
struct rdzv_view {
    const char *name; /* lent */
    int index, slots;
    bool part, started,
        done;         /* member of the current round; its workers have started; have all exited */
    bool unfit;       /* excluded from further rounds */
    bool rested;      /* to be left out of rounds while other nodes suffice */
    const char *mark; /* why the scheduler takes the node out of service, lent; NULL: it does not */
};
bool rdzv_view(const struct rdzv *m, int id,
               struct rdzv_view *ret); /* false: no member has this id */
/* Return the highest step that the program has reached; -1: unknown. *ret_stuck: number of the last
 * restarts without a new step. */
int64_t rdzv_step_reached(const struct rdzv *m, int *ret_stuck);
/* Return why --progress-restarts has ended the job, lent; "": it has not. */
const char *rdzv_verdict(const struct rdzv *m);
/* The unfit node that has ended the job, since too few others were left. Texts are lent. */
struct rdzv_unfit {
    const char *node, *check, *why; /* check: "": unknown */
};
bool rdzv_unfit_end(const struct rdzv *m, struct rdzv_unfit *ret); /* false: none has */
/* First failures of rounds that were charged to a node, and whether rounds leave the node out. */
struct rdzv_charges {
    const char *name, *why; /* lent; why: reason of the last charge, or "" */
    int n;                  /* number of charges */
    uint64_t age_ns;        /* time since the last charge */
    const char *left_out;   /* why rounds leave the node out, lent; NULL: they do not */
};
bool rdzv_charges(const struct rdzv *m, int index, uint64_t now,
                  struct rdzv_charges *ret); /* false: no charge, and not left out */
/* Return the number of charges of this daemon. *ret: charges of the node that was charged last;
 * unchanged if the number is 0. */
int rdzv_last_charge(const struct rdzv *m, uint64_t now, struct rdzv_charges *ret);
/* Like rdzv_charges(), for the i-th node that has inherited charges and has not joined; false:
 * there are fewer. */
bool rdzv_charges_of_absent(const struct rdzv *m, int i, uint64_t now, struct rdzv_charges *ret);
/* Append the charges for the next daemon, of at most CHARGES_MAX nodes, those charged last. 0 or
 * -ENOMEM. */
int rdzv_charges_format(const struct rdzv *m, uint64_t now, struct dd_buf *out);
int rdzv_restarts(const struct rdzv *m); /* number of restarts used */
/* True if the daemon runs on the member's node. */
bool rdzv_is_leader(const struct rdzv *m, int id);
/* True if the member may be drained: it is not the leader, and the other nodes suffice for the next
 * round. */
bool rdzv_can_drain(struct rdzv *m, int id);
/* Append the folded names of the nodes that have not joined, or "N nodes" if some names are
 * unknown. 0 or -ENOMEM. */
int rdzv_missing(const struct rdzv *m, struct dd_buf *out);

/* Find what the job waits for at the time `now`. False: for nothing, or only for its workers. */
bool rdzv_waiting(const struct rdzv *m, uint64_t now, struct rdzv_wait *ret);

#endif
