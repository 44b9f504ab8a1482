/* The round machine: who takes part, with which ranks, and how the job ends. Sans I/O.
 *
 * Events come in (rdzv_step), actions come out (rdzv_next_action); it knows no socket, no clock and
 * no process: the time of an event comes with it, and rdzv_timer() says when the next RDZV_TIME is
 * wanted. A member is an agent that has joined; the caller numbers its connections 0 … capacity-1
 * ("id"), and a member keeps its id until it is lost. A member that has no part in the round waits
 * for the next one.
 */
#ifndef DD_RDZV_MACHINE_H
#define DD_RDZV_MACHINE_H

#include "base/err.h"
#include "hostlist/hostlist.h"
#include "rdzv/members.h"
#include "rdzv/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum rdzv_state { RDZV_GATHERING, RDZV_RUNNING, RDZV_STOPPING, RDZV_FINISHED, RDZV_STATE_MAX };

enum rdzv_event_kind {
    RDZV_JOIN,                 /* an agent asks to take part */
    RDZV_STARTED,              /* a member has taken the plan of this round */
    RDZV_EXIT,                 /* a worker failed */
    RDZV_SUCCESS_CRITERIA_MET, /* a member's workers that matter have succeeded: of all members, it
                                * ends the job
                                */
    RDZV_DONE,                 /* a member's workers of this round are all gone */
    RDZV_LOST,                 /* a member's connection is gone */
    RDZV_STOP_REQUEST,         /* somebody wants the job to end */
    RDZV_PROBE_RESULT, /* the daemon's own node has asked all others: none has another daemon */
    RDZV_DRAIN,        /* a person wants a member to have no part in the next round; text says so */
    RDZV_TIME,         /* what rdzv_timer() has asked for */
    RDZV_EVENT_MAX,
};

struct rdzv_event {
    enum rdzv_event_kind kind;
    int id;        /* member; not of TIME; -1 in STOP_REQUEST: the daemon itself */
    int round;     /* STARTED, EXIT, ENOUGH, DONE: those of another round are stale and ignored */
    int index;     /* JOIN: position in the host list, or -1 */
    int nnodes;    /* JOIN: the most nodes that agent expects */
    int min_nodes; /* JOIN: and the fewest */
    int64_t epoch; /* JOIN: of a daemon on that node, 0 */
    int slots;     /* JOIN: workers it will start */
    const char *name; /* JOIN: its name */
    const char
        *addr; /* JOIN: the daemon's address as that agent reached it; "": it did not have to */
    int local_rank, code, signal; /* EXIT; STOP_REQUEST: signal, 0: a node cannot start its workers;
                                   * code, 0: as the signal says */
    bool clean;        /* LOST: it said good-bye, so it is not on the other side of a cut */
    const char *text;  /* JOIN: why it cannot run workers, NULL or "": it can; LOST, STOP_REQUEST:
                        * why, or "";  EXIT: why, or "" or NULL */
    const char *unfit; /* JOIN, DONE: what is wrong with that node, NULL or "": nothing */
    /* JOIN: rounds that the agent knows of, under whichever daemon; NULL: none */
    const struct rdzv_members *committed; /* the last one that all its members had started */
    const struct rdzv_members *planned;   /* the last one it has itself started */
    const uint64_t
        *ages; /* JOIN: how long ago the last restarts were that it knows of, the youngest first */
    int nages;
    bool ended_well; /* JOIN: all its workers of that round had ended with 0 */
    bool elsewhere;  /* JOIN: it has another daemon, and leaves that one when this one takes it */
};

enum rdzv_action_kind {
    RDZV_SEND_REFUSE,        /* to id: text says why; its connection is to be closed */
    RDZV_SEND_WELCOME,       /* to id, which comes from another daemon: it takes part here */
    RDZV_SEND_PLAN,          /* to id: rdzv_plan() gives it */
    RDZV_SEND_PROBE_REQUEST, /* to id, the daemon's own node: another daemon may go on; look for it.
                              * Before the   first round of a daemon that looks first it is to say
                              * RDZV_PROBE_RESULT */
    RDZV_SEND_ROUND_STARTED, /* to id, the daemon's own node: a round has begun without it; no other
                        daemon is to be looked for */
    RDZV_SEND_COMMIT,        /* to id: all members have started the round */
    RDZV_SEND_ROUND_MEMBERS, /* to id, which has no place in the round: who its members are
                              * (rdzv_planned())
                              */
    RDZV_SEND_STOP,          /* to id: stop with `signal` */
    RDZV_SEND_FINISH, /* to id: leave with rdzv_code(); report = 1: tell the user rdzv_text() */
    RDZV_SEND_NOTE,   /* to id: text is news for the user */
    RDZV_DROP_STORE,  /* the keys of the round that has ended */
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
    int min_nodes, max_nodes; /* of a round */
    int expected;             /* nodes that will come by themselves; 0: max_nodes */
    int capacity;             /* members at once; 0: max_nodes */
    int max_restarts;
    uint64_t restart_window_ns; /* max_restarts within this time; 0: in all */
    uint64_t join_ns;           /* how long the nodes of the first round are waited for */
    uint64_t last_call_ns;      /* how long for more, once there are enough */
    uint64_t rejoin_ns;         /* how long for enough nodes after a loss */
    enum rdzv_grow grow;        /* when a node that comes late takes part */
    uint16_t master_port;
    const struct hostlist *nodes; /* borrowed for good; may hold fewer names than there are nodes */
    int64_t epoch;                /* 0: of the first daemon of the job */
    int tie;                      /* index of the daemon's node */
    int probes_first; /* the daemon's node may have been started again, and cannot know: 1: the
                       * first round begins with all expected nodes, or once the other nodes have
                       * been looked at */
};

#define RDZV_NEVER UINT64_MAX

/* A lost node costs it no restart: there may be fewer nodes, or there are spare ones. */
bool rdzv_is_elastic(const struct rdzv_cfg *cfg);

struct rdzv;

int rdzv_new(struct rdzv **ret, const struct rdzv_cfg *cfg, uint64_t now);
void rdzv_free(struct rdzv *m);

/* Takes one event. 0, -ENOMEM, or -EINVAL for an event that cannot be (refused, nothing changed).
 */
int rdzv_step(struct rdzv *m, const struct rdzv_event *e, uint64_t now);
/* The next action in order; false when there is none. */
bool rdzv_next_action(struct rdzv *m, struct rdzv_action *ret);
uint64_t rdzv_timer(const struct rdzv *m); /* when RDZV_TIME is due, on the clock of now */

enum rdzv_state rdzv_state(const struct rdzv *m);
const char *rdzv_state_name(enum rdzv_state s);
const char *rdzv_event_name(enum rdzv_event_kind e);
int rdzv_round(const struct rdzv *m);
/* How long ago the last restarts were, the youngest first, at most `max`; 0: nobody counts within a
 * time. */
int rdzv_ages(const struct rdzv *m, uint64_t now, uint64_t *ages, int max);
bool rdzv_misses_nodes(
    const struct rdzv *m); /* of the last round, whose daemon was lost, and has begun none itself */
int rdzv_code(const struct rdzv *m);         /* exit code of the job, once finished */
const char *rdzv_text(const struct rdzv *m); /* what to tell the user; "" when all went well */
bool rdzv_may_continue(const struct rdzv *m,
                       uint64_t now);         /* there may be another round after a loss */
bool rdzv_has_begun(const struct rdzv *m);    /* this daemon has started a round */
bool rdzv_all_finished(const struct rdzv *m); /* every node of the job has been sent FINISH */
int rdzv_members(const struct rdzv *m);       /* how many are here */
int rdzv_wanted(const struct rdzv *m);        /* how many are waited for while gathering */
int rdzv_id_of_rank(const struct rdzv *m, int node_rank); /* -1: lost, or none */
/* Plan of a member for the current round; gives the content of *ret. */
int rdzv_plan(const struct rdzv *m, int id, struct plan *ret);
const struct rdzv_members *rdzv_planned(const struct rdzv *m); /* who is in it, lent */
/* A member, as a person sees it. */
struct rdzv_view {
    const char *name; /* lent */
    int index, slots;
    bool part, started, done; /* of the current round */
    bool unfit;               /* left out of every further round */
};
bool rdzv_view(const struct rdzv *m, int id,
               struct rdzv_view *ret);       /* false: nobody is here under that id */
int rdzv_restarts(const struct rdzv *m);     /* used up */
bool rdzv_can_drain(struct rdzv *m, int id); /* the others are enough, may begin a round without it,
                                                and it is not the daemon's own */
/* Names of the nodes that have not joined, folded; appended to out. */
int rdzv_missing(const struct rdzv *m, struct dd_buf *out);

#endif
