/* The agent's machine on an event loop: parts of the agent raise events here, and the machine's
 * actions and timers are carried out. This header includes only the machine, so that each part of
 * the agent may include it. */
#ifndef DD_AGENT_AGENT_LOOP_H
#define DD_AGENT_AGENT_LOOP_H

#include "agent/agent_machine.h"
#include "base/err.h"
#include "base/num.h"
#include "net/link.h"

#include <stdbool.h>

struct agent_cfg; /* agent/agent.h */
struct event;
struct event_base;

/* Carries out an action, which may raise further events. */
typedef void agent_act_f(void *arg, const struct am_action *what);

/* Written by agent_loop.c only; parts read cfg, base and the machine. */
struct agent_loop {
    const struct agent_cfg *cfg;
    struct event_base *base;
    struct agent_machine machine;
    struct am_cfg machine_cfg;
    bool acting;         /* actions of the machine are being carried out */
    struct event *timer; /* next timer of the machine, at most LOOK_MS away */
    uint64_t wakes_ms;   /* time at which `timer` fires; 0: the machine has no timer */
    agent_act_f *act;
    void *arg;
    int round;                    /* number of the last plan, for traces; -1: none */
    char why[LINK_WHY_MAX + 100]; /* reason of the last event, for reports */
};

/* last: members of the last round that this node knows of, borrowed until agent_loop_done(), which
 * is called also after a failure. */
int agent_loop_init(struct agent_loop *l, const struct agent_cfg *cfg, const struct am_cfg *machine,
                    const struct rdzv_members *last, struct dd_err *err);
void agent_loop_set_act(struct agent_loop *l, agent_act_f *act, void *arg);
/* Run until AM_DO_EXIT. Returns the exit code of this process. */
int agent_loop_run(struct agent_loop *l);
void agent_loop_exit(struct agent_loop *l);
void agent_loop_done(struct agent_loop *l);

/* Raise an event of the machine. */
void agent_step(struct agent_loop *l, struct am_event e);
/* Report an error that ends this node with exit code 2. */
void agent_fail(struct agent_loop *l, const char *why);
/* Set the reason that reports of the next event quote. */
__attribute__((format(printf, 2, 3))) void agent_because(struct agent_loop *l, const char *fmt,
                                                         ...);
/* Write the time left until this timer. If the timer is not set, write the time that it will be set
 * to: for AM_FAIL_OVER_LIMIT the time to rejoin, otherwise --rdzv-timeout. */
void agent_loop_time_left(const struct agent_loop *l, enum am_event_kind timer,
                          char out[DD_DURATION_TEXT]);
/* Set the position in the host list that the daemon has assigned to this node. */
void agent_loop_set_index(struct agent_loop *l, int index);
/* Set the round number of the last plan, for traces. */
void agent_loop_set_round(struct agent_loop *l, int round);

#endif
