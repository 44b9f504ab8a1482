/* Private to machine*.c. */
#ifndef DD_RDZV_MACHINE_INNER_H
#define DD_RDZV_MACHINE_INNER_H

#include "rdzv/charges.h"
#include "rdzv/machine.h"
#include "rdzv/marks.h"
#include "rdzv/progress.h"

struct member {
    bool here;         /* joined, and not lost */
    bool part;         /* member of the current round */
    bool started;      /* its workers of the current round have started */
    bool criteria_met; /* its required workers have succeeded */
    bool done;         /* its workers of the current round have exited, or were never started */
    bool votes;        /* its agent remembers the round whose majority is needed */
    bool ended_well;   /* its workers of the last round of an older daemon have succeeded */
    bool unfit;        /* excluded from further rounds */
    char *unfit_why;   /* NULL: fit, or out of memory */
    char *unfit_check; /* the health check that failed; NULL: unknown */
    const char *mark;  /* why the scheduler takes the node out of service, lent by .marks; NULL: it
                          does not */
    int64_t step;      /* last step that it has reported in this round; -1: none */
    int index;         /* -1 until assigned */
    int node_rank;     /* in the current round; -1: not a member of it */
    int slots;
    char *name;
    char *addr;
};

/* A node that should be left out of the next round, if others can take its place. */
enum rest {
    REST_NONE,
    REST_EARLIER, /* left out of an earlier round; takes part before nodes of the levels below */
    REST_NOW,     /* to be left out since a failure of the last round */
    REST_MARKED,  /* the scheduler takes it out of service */
    REST_LEVELS,
};

/* First failures that are charged to a node. */
struct rdzv_suspect {
    int charges;           /* number of charges */
    int fresh;             /* charges since the last decision to leave the node out */
    uint64_t last, before; /* times of the last two charges; times before the start of the clock
                              wrap around */
    bool blamed;           /* the node is left out because of its charges */
    char *name, *why;      /* why: of the last charge; NULL: out of memory */
    int index;             /* inherited charges: node index under the older daemon; -1: unknown */
    enum charge_rest rest; /* inherited charges: why the older daemon left the node out */
};

enum {
    KNOWN_MAX = 8,
    LOSSES_MAX = 3,
    BAD_INPUT = 2, /* exit code if a node cannot start the workers */
    NS_PER_S = 1000000000,
};

struct rdzv {
    struct rdzv_cfg cfg;
    enum rdzv_state state;
    int round;
    int beyond;      /* last round of this epoch that a joined agent remembers */
    int restarts;    /* number of restarts used */
    uint64_t *spent; /* [max_restarts] times of the last restarts; NULL without restart_window_ns */
    int here;        /* number of members with .here */
    int unfit;       /* number of connected members with .unfit */
    int started;     /* number of members of the round with .started */
    int running;     /* number of members of the round with workers */
    bool begun;      /* this daemon has started a round */
    bool probing;    /* the other nodes are being probed, before the first round */
    bool probed;     /* the other nodes have been probed and have no other daemon */
    bool committed;  /* all members have started their workers of this round */
    bool failed;     /* this round has failed */
    bool end;        /* start no further round, even with restarts left */
    bool lost_part;  /* this round has lost a node */
    bool criteria_met; /* the success criteria are met on all members: failures no longer count */
    bool regroup;      /* this round is stopped without a failure, to change its nodes */
    bool drained;      /* regroup: to leave out drained or marked nodes */
    int finish_sent;   /* number of agents that have been sent FINISH */
    int code;
    char text[400];
    uint64_t deadline;      /* end of gathering */
    uint64_t last_call;     /* start the round at this time; RDZV_NEVER: not enough nodes yet */
    struct member *members; /* [capacity] by id */
    int *by_index;          /* [capacity] id by node index; -1: none */
    unsigned char *losses;  /* [capacity] number of losses by node index */
    bool *excluded;         /* [capacity] by node index */
    unsigned char *rest;    /* [capacity] by node index: enum rest */
    struct rdzv_suspect *suspects; /* [capacity] by node index */
    /* charges by older daemons, of nodes that have not joined this one */
    struct rdzv_suspect inherited[CHARGES_MAX];
    int ninherited;
    int ncharged, charged; /* number of charges by this daemon; node index of the last charge */
    struct rdzv_marks marks;
    uint64_t leave_at; /* time of the restart without the marked nodes; RDZV_NEVER: none is
                          planned */
    bool left;         /* whether to leave the marked nodes was decided since the marks or the
                        * members last changed */
    struct progress progress;
    char verdict[200];
    int unfit_end;                 /* member that has ended the job, since it is unfit; -1: none */
    int fault_index;               /* node of the first failure of this round; -1: none yet */
    uint64_t fault_at, stopped_at; /* times of the first failure, and of the last STOP */
    char fault_why[200];
    int *seats;     /* [capacity] scratch of rdzv_choose() */
    int ruled_code; /* exit code for which a rule ends the job after this round; 0: none */
    int *order;     /* [capacity] member id by node rank; -1: lost */
    int norder;
    char *names;                 /* node names of the round, folded */
    struct rdzv_members planned; /* members of the current round */
    struct rdzv_members
        base; /* members of the last round that all had started: a majority of them is needed */
    struct rdzv_members known[KNOWN_MAX]; /* rounds of earlier daemons, as agents report
                                             them in JOIN until the first round */
    bool known_committed[KNOWN_MAX];
    int nknown;
    struct rdzv_action *actions;
    size_t nactions, next, cap;
};

/* Return the id of the member on the daemon's own node; -1: it is not connected. */
static inline int rdzv_own_id(const struct rdzv *m)
{
    return m->by_index[m->cfg.tie];
}

bool rdzv_is_fit(const struct rdzv *m, int id);
const char *rdzv_member_name(const struct rdzv *m, int id);

/* machine_members.c: connected members, and the order of the next round */
int rdzv_fit(const struct rdzv *m);     /* number of members that are fit */
bool rdzv_quorum(const struct rdzv *m); /* True with a majority among the connected members */
bool rdzv_unmarked_quorum(const struct rdzv *m); /* True with a majority among unmarked members */
bool rdzv_part_quorum(const struct rdzv *m);     /* True with a majority among the chosen members */
int rdzv_last_size(const struct rdzv *m);        /* size of the round whose majority is needed */
const struct rdzv_members *
rdzv_last_known(const struct rdzv *m); /* newest round of an older daemon; NULL: none */
int rdzv_merge_history(struct rdzv *m,
                       const struct rdzv_event *join); /* record the rounds of older daemons */
void rdzv_merge_restart_ages(struct rdzv *m, const struct rdzv_event *join,
                             uint64_t now);            /* record the restarts under older daemons */
void rdzv_forget(struct rdzv_members *set, int index); /* remove a member that has left for good */
int rdzv_choose(struct rdzv *m,
                uint64_t now); /* set order, norder and planned for the next round */

/* machine_actions.c; functions that queue actions return 0 or -ENOMEM */
struct rdzv_action *rdzv_act(struct rdzv *m, enum rdzv_action_kind kind,
                             int id); /* NULL: out of memory */
int rdzv_act_text(struct rdzv *m, enum rdzv_action_kind kind, int id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define rdzv_refuse(m, id, ...) rdzv_act_text(m, RDZV_SEND_REFUSE, id, __VA_ARGS__)
int rdzv_reporter(
    const struct rdzv *m); /* id of the member that reports to the user; -1: none is connected */
void rdzv_fail(struct rdzv *m, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void rdzv_fail_also(struct rdzv *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int rdzv_send_finish(struct rdzv *m, int id, bool report);
int rdzv_code_of_stop(const struct rdzv_event *e); /* exit code of the job after a STOP_REQUEST */
int rdzv_send_stop(struct rdzv *m, int sig);       /* send STOP to all members with workers */
int rdzv_finish(struct rdzv *m);                   /* send FINISH to all connected members */

/* machine_gather.c */
int rdzv_try_start(struct rdzv *m, uint64_t now); /* start the round if enough nodes are ready, or
                                                     fail the job after the deadline */
int rdzv_inform_own_node(
    struct rdzv *m); /* send ROUND_STARTED to the daemon's own node if it is not in the round */
int rdzv_inform_spare(struct rdzv *m, int id); /* send ROUND_MEMBERS to a spare */

/* machine_budget.c */
bool rdzv_budget_left(const struct rdzv *m, uint64_t now); /* True if a restart is left. */
void rdzv_spend(struct rdzv *m, uint64_t now);

/* machine_rules.c: --exit-rules */
bool rdzv_rule_ends(const struct rdzv *m, int code); /* True if this exit code ends the job. */
void rdzv_apply_exit_rule(struct rdzv *m, const struct rdzv_event *exit);
/* End the job by a rule, and record its exit code. */
int rdzv_end_by_rule(struct rdzv *m, uint64_t now);
enum rest rdzv_rest(const struct rdzv *m, int id);
enum charge_rest rdzv_rest_reason(const struct rdzv *m, int index); /* why the node is left out */
/* Report which of the nodes that should be left out are left out of the round that starts. */
int rdzv_note_rests(struct rdzv *m);

/* machine_marks.c: nodes that the scheduler takes out of service */
/* Plan a restart without the marked nodes if other nodes can replace them, unless that has been
 * decided. */
int rdzv_try_leave(struct rdzv *m, uint64_t now);
/* True if the failure of a worker is a consequence of leave_signal. */
bool rdzv_absorbs_exit(struct rdzv *m, const struct rdzv_event *exit);

/* machine_progress.c: --progress-restarts */
/* Record a failed round. True if the job is to end, since its restarts reach no new step. */
bool rdzv_lacks_progress(struct rdzv *m);
void rdzv_progress_begin(struct rdzv *m); /* forget the steps of the last round */

/* machine_blame.c: --blame-window */
/* Record a failure of this round at the time `at`; the earliest one will be charged. */
void rdzv_suspect(struct rdzv *m, int id, uint64_t at, const char *why);
void rdzv_suspect_exit(struct rdzv *m, const struct rdzv_event *exit, uint64_t now);
void rdzv_charge(struct rdzv *m, uint64_t now); /* charge the round's first failure to its node */
/* Merge the charges that an agent remembers. 0 or -ENOMEM. */
int rdzv_inherit_charges(struct rdzv *m, const struct charges *c, uint64_t now);
/* Assign inherited charges to the nodes that have joined, before a round starts. */
void rdzv_settle_charges(struct rdzv *m, uint64_t now);
void rdzv_free_charges(struct rdzv *m);
const char *rdzv_rest_text(enum charge_rest rest); /* reason for users; NULL: not left out */

/* machine_round.c */
int rdzv_request_probe(
    struct rdzv *m); /* request a probe if too few nodes are connected to continue */

/* machine_join.c */
int rdzv_exclude(struct rdzv *m, int id,
                 const char *why); /* exclude a member from further rounds; it stays connected */
void rdzv_remove_member(struct rdzv *m, int id);

static inline bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* Event handlers, the cells of the table in machine.c. */
typedef int rdzv_handler(struct rdzv *m, const struct rdzv_event *e, uint64_t now);
rdzv_handler rdzv_on_marks, rdzv_on_running_time;
rdzv_handler rdzv_on_join, rdzv_on_join_after, rdzv_on_late_join, rdzv_on_lost_early, rdzv_on_drain,
    rdzv_on_drain_early;
rdzv_handler rdzv_on_time, rdzv_on_probe_result, rdzv_on_stop_early;
rdzv_handler rdzv_on_started, rdzv_on_success_criteria_met, rdzv_on_exit, rdzv_on_done,
    rdzv_on_progress, rdzv_on_lost, rdzv_on_lost_late, rdzv_on_stop_request;

#endif
