/* Shared by machine*.c only. */
#ifndef DD_RDZV_MACHINE_INNER_H
#define DD_RDZV_MACHINE_INNER_H

#include "rdzv/machine.h"

struct member {
    bool here;         /* joined and not lost */
    bool part;         /* of the current round */
    bool started;      /* its workers of the current round */
    bool criteria_met; /* its workers that matter have succeeded */
    bool done;         /* its workers of the current round are gone, or were never started */
    bool votes; /* it remembers the round that a majority is needed of: one that was started anew
                   does not */
    bool ended_well; /* its workers of an older daemon's last round */
    bool unfit;      /* left out of every further round */
    int index;       /* -1 until assigned */
    int slots;
    char *name;
    char *addr;
};

enum {
    KNOWN_MAX = 8,
    LOSSES_MAX = 3,
    BAD_INPUT = 2, /* exit code when a node cannot start what the user asked for */
};

struct rdzv {
    struct rdzv_cfg cfg;
    enum rdzv_state state;
    int round;
    int beyond;        /* the last round of this epoch that anybody who came knows of */
    int restarts;      /* used up */
    uint64_t *spent;   /* [max_restarts] times of the last ones, when they count within a time */
    int here;          /* members with .here */
    int running;       /* members of the round with workers left */
    bool begun;        /* this daemon has started a round */
    bool probing;      /* the other nodes are being looked at, before the first round */
    bool probed;       /* and they have no daemon */
    bool committed;    /* all members have started this round */
    bool failed;       /* this round has seen a failure */
    bool end;          /* no further round, whatever the budget says */
    bool lost_part;    /* this round has lost a node */
    bool criteria_met; /* so of all members: the rest is ended, and nothing counts as a failure any
                          more */
    bool regroup;      /* this round is stopped for a larger one, or */
    bool drained;      /* for one without a node that a person has drained */
    int finish_sent;   /* agents that have been sent FINISH */
    int code;
    char text[400];
    uint64_t deadline;      /* of gathering */
    uint64_t last_call;     /* RDZV_NEVER: not enough nodes yet */
    struct member *members; /* [capacity] by id */
    int *by_index;          /* [capacity] id or -1 */
    unsigned char *losses;  /* [capacity] by index */
    bool *excluded;         /* [capacity] by index */
    int *order;             /* [capacity] id by node rank; -1: lost */
    int norder;
    char *names;                 /* of the round's nodes, folded */
    struct rdzv_members planned; /* the current round */
    struct rdzv_members base;    /* the last round that all had started: a majority is needed */
    struct rdzv_members
        known[KNOWN_MAX]; /* what members of an older daemon tell, until the first round */
    bool known_committed[KNOWN_MAX];
    int nknown;
    struct rdzv_action *actions;
    size_t nactions, next, cap;
};

bool rdzv_is_fit(const struct rdzv *m, int id);
const char *rdzv_member_name(const struct rdzv *m, int id);

/* machine_members.c: pure questions about who is here, and the order of the next round */
int rdzv_fit(const struct rdzv *m);
bool rdzv_quorum(const struct rdzv *m);      /* of who is here */
bool rdzv_part_quorum(const struct rdzv *m); /* of who was chosen */
int rdzv_last_size(const struct rdzv *m);    /* nodes of the round that a majority is needed of */
const struct rdzv_members *
rdzv_last_known(const struct rdzv *m); /* the newest round of an older daemon; NULL */
int rdzv_merge_history(struct rdzv *m, const struct rdzv_event *join); /* rounds of older daemons */
void rdzv_merge_restart_ages(struct rdzv *m, const struct rdzv_event *join,
                             uint64_t now);            /* of restarts */
void rdzv_forget(struct rdzv_members *set, int index); /* it has left for good */
int rdzv_choose(struct rdzv *m); /* order, norder and planned of the next round */

/* machine_actions.c: 0 or -ENOMEM, as all that wants something done */
struct rdzv_action *rdzv_act(struct rdzv *m, enum rdzv_action_kind kind,
                             int id); /* NULL: no memory */
int rdzv_act_text(struct rdzv *m, enum rdzv_action_kind kind, int id, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define rdzv_refuse(m, id, ...) rdzv_act_text(m, RDZV_SEND_REFUSE, id, __VA_ARGS__)
int rdzv_reporter(const struct rdzv *m); /* who tells the user; -1: nobody is here */
void rdzv_fail(struct rdzv *m, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void rdzv_fail_also(struct rdzv *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int rdzv_send_finish(struct rdzv *m, int id, bool report);
int rdzv_code_of_stop(const struct rdzv_event *e); /* the job's, after a STOP_REQUEST */
int rdzv_send_stop(struct rdzv *m, int sig);       /* to all whose workers run */
int rdzv_finish(struct rdzv *m);                   /* for all who are here */

/* machine_gather.c */
int rdzv_try_start(struct rdzv *m,
                   uint64_t now); /* are these enough? Begins the round, gives up, or neither */
int rdzv_inform_own_node(struct rdzv *m);      /* that the round goes without it, if it does */
int rdzv_inform_spare(struct rdzv *m, int id); /* of the round that runs without it */
int rdzv_count_excluded(const struct rdzv *m); /* how many who are here are */

/* machine_budget.c */
bool rdzv_budget_left(const struct rdzv *m, uint64_t now); /* of restarts */
void rdzv_spend(struct rdzv *m, uint64_t now);

/* machine_round.c */
int rdzv_request_probe(struct rdzv *m); /* for another daemon, where too few are here to go on */

/* machine_join.c */
int rdzv_exclude(struct rdzv *m, int id,
                 const char *why); /* it stays, but no round takes it any more */
void rdzv_remove_member(struct rdzv *m, int id);

static inline bool has_text(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* What happens, one handler for each cell of the table in machine.c. */
typedef int rdzv_handler(struct rdzv *m, const struct rdzv_event *e, uint64_t now);
rdzv_handler rdzv_on_join, rdzv_on_join_after, rdzv_on_late_join, rdzv_on_lost_early, rdzv_on_drain,
    rdzv_on_drain_early;
rdzv_handler rdzv_on_time, rdzv_on_probe_result, rdzv_on_stop_early;
rdzv_handler rdzv_on_started, rdzv_on_success_criteria_met, rdzv_on_exit, rdzv_on_done,
    rdzv_on_lost, rdzv_on_lost_late, rdzv_on_stop_request;

#endif
