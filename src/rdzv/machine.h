/* The round machine: who takes part, with which ranks, and how the job ends. Sans I/O.
 *
 * Events come in (rdzv_step), actions come out (rdzv_next_action); it knows no socket, no clock and
 * no process. A member is an agent that has joined; the caller numbers its connections 0 … nnodes-1
 * ("id") and a member keeps its id until it is lost.
 */
#ifndef DD_RDZV_MACHINE_H
#define DD_RDZV_MACHINE_H

#include "base/err.h"
#include "hostlist/hostlist.h"
#include "rdzv/plan.h"

#include <stdbool.h>
#include <stdint.h>

enum rdzv_state { RDZV_GATHERING, RDZV_RUNNING, RDZV_STOPPING, RDZV_FINISHED, RDZV_STATE_MAX };

enum rdzv_event_kind {
    RDZV_JOIN,         /* an agent asks to take part */
    RDZV_EXIT,         /* a worker failed */
    RDZV_DONE,         /* a member's workers of this round are all gone */
    RDZV_LOST,         /* a member's connection is gone without a good-bye */
    RDZV_STOP_REQUEST, /* somebody wants the job to end */
    RDZV_DEADLINE,     /* the time for gathering is over */
    RDZV_EVENT_MAX,
};

struct rdzv_event {
    enum rdzv_event_kind kind;
    int id;           /* member; not of DEADLINE; -1 in STOP_REQUEST: the daemon itself */
    int round;        /* EXIT, DONE: those of another round are stale and ignored */
    int index;        /* JOIN: position in the host list, or -1 */
    int nnodes;       /* JOIN: how many nodes that agent expects */
    int slots;        /* JOIN: workers it will start */
    const char *name; /* JOIN: its name */
    const char *addr; /* JOIN: the daemon's address as that agent reached it; "": it did not have to */
    int local_rank, code, signal; /* EXIT; STOP_REQUEST: signal, 0: a node cannot start its workers */
    const char *text; /* JOIN: why it cannot run workers, NULL or "": it can; LOST, STOP_REQUEST, DEADLINE: why, or "" */
};

enum rdzv_action_kind {
    RDZV_SEND_REFUSE, /* to id: text says why; its connection is to be closed */
    RDZV_SEND_PLAN,   /* to id: rdzv_plan() gives it */
    RDZV_SEND_STOP,   /* to id: stop with `signal` */
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

struct rdzv;

struct rdzv_cfg {
    int nnodes;
    int max_restarts;
    uint16_t master_port;
    const struct hostlist *nodes; /* borrowed for good; may hold fewer names than nnodes */
};

int rdzv_new(struct rdzv **ret, const struct rdzv_cfg *cfg);
void rdzv_free(struct rdzv *m);

/* Takes one event. 0, -ENOMEM, or -EINVAL for an event that cannot be (refused, nothing changed). */
int rdzv_step(struct rdzv *m, const struct rdzv_event *e);
/* The next action in order; false when there is none. */
bool rdzv_next_action(struct rdzv *m, struct rdzv_action *ret);

enum rdzv_state rdzv_state(const struct rdzv *m);
const char *rdzv_state_name(enum rdzv_state s);
int rdzv_round(const struct rdzv *m);
int rdzv_code(const struct rdzv *m);         /* exit code of the job, once finished */
const char *rdzv_text(const struct rdzv *m); /* what to tell the user; "" when all went well */
bool rdzv_all_told(const struct rdzv *m);    /* every node of the job has been sent FINISH */
int rdzv_members(const struct rdzv *m);      /* how many are here */
int rdzv_index(const struct rdzv *m, int id); /* position in the host list, -1 when not known (yet) */
/* Plan of a member for the current round; gives the content of *ret. */
int rdzv_plan(const struct rdzv *m, int id, struct plan *ret);
/* Names of the nodes that have not joined, folded; appended to out. */
int rdzv_missing(const struct rdzv *m, struct dd_buf *out);

#endif
