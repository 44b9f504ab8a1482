/* The wiring of an agent: its parts, each with a file and a private state of its own. Included
 * only by agent.c, which makes the parts, and by the three files that connect them to the machine:
 * agent_actions.c, agent_messages.c and rounds.c. */
#ifndef DD_AGENT_AGENT_PARTS_H
#define DD_AGENT_AGENT_PARTS_H

#include "agent/agent.h"
#include "agent/agent_loop.h"
#include "agent/charges_file.h"
#include "agent/control.h"
#include "agent/health_check.h"
#include "agent/leader.h"
#include "agent/locators.h"
#include "agent/metrics_file.h"
#include "agent/node_watch.h"
#include "agent/requeue.h"
#include "agent/round.h"
#include "agent/round_history.h"
#include "agent/signal_before_end.h"
#include "agent/signals.h"
#include "agent/status_line.h"
#include "agent/timeout.h"
#include "agent/uplink.h"
#include "agent/warm_interpreter.h"
#include "rdzv/msg.h"

/* rounds.c: a round that waits before its workers start. */
struct rounds {
    struct warm_interpreter *warm; /* NULL: no --warm, or the workers cannot run on this node */
    bool held;                     /* the round waits for the interpreter or the copies */
    bool copying;            /* held, and copies of --stage or --compile-cache are not complete */
    struct event *on_staged; /* activated when copies of one of these options are complete */
    int presignal; /* signal before the end of the allocation, for the workers that will be started;
                      0: none */
};

/* Parts that end the job, mark nodes or requeue the job. */
struct limits {
    struct timeout *timeout;
    struct signal_before_end *before_end;
    struct node_watch *node_watch;
    struct requeue *requeue;
};

struct agent {
    struct agent_loop loop;
    struct uplink *uplink;
    struct locators locators;
    struct leader *leader;
    struct round *round;
    struct rounds rounds;
    struct round_history history;
    struct health *health;
    struct signals *signals;
    struct limits limits;
    struct metrics_file *metrics_file;
    struct charges_file *charges_file;
    struct control *control;          /* NULL: ddctl is not served */
    struct status_line *status_line;  /* NULL: none is shown */
    const struct msg *message;        /* agent_messages.c: the message being handled; NULL: none */
    char refusal[LINK_WHY_MAX + 100]; /* why another daemon of this job refuses this node, as last
                                         reported; "": not reported */
};

/* agent_messages.c: handle a frame of the daemon in use; send JOIN on l. */
void agent_receive(void *arg, const struct frame *f);
void agent_send_join(void *arg, struct link *l);

/* agent_actions.c: carry out an action of the machine, which may raise events. */
void agent_act(void *arg, const struct am_action *what);

/* rounds.c */
int rounds_new(struct agent *a, struct dd_err *err);
void rounds_done(struct agent *a);
/* Forward the signal before the end of the allocation to the round, once its workers run. */
void rounds_presignal(struct agent *a, int sig);
/* Answer a request for the stacks of this node, also if no round runs here. */
void rounds_take_stacks(const struct agent *a, const struct msg_stacks_request *m);
void rounds_take_usage(const struct agent *a, const struct msg_usage_request *m);
void rounds_take_piece(const struct agent *a, const struct frame *f); /* part of an exchange */
void rounds_take_store(const struct agent *a, const struct frame *f); /* for the store's relay */
/* Call when the link is lost. Another link may follow. */
void rounds_link_lost(const struct agent *a);
void rounds_first_lost(const struct agent *a); /* the first node of the round is lost */
/* < 0: not started; the reason has been reported */
int rounds_start(struct agent *a, const struct msg_plan *m);
/* The round is being stopped. If it still waits for its interpreter or its copies, discard it:
 * AM_WORKERS_GONE follows. */
void rounds_drop_held(struct agent *a);
void rounds_check_health(struct agent *a); /* if another round may follow; AM_CHECKED follows */
void rounds_send_done(const struct agent *a);

#endif
